import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Root of the repository. */
export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Major versions of Node that the package is tried on; the npm package `node` brings them. */
export const NODE_MAJORS = [20, 22, 24] as const;

const QUIET = ["--no-audit", "--no-fund"] as const;

export interface Output {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The packed package, installed in an empty folder the way a user does it. */
export interface Installation {
  readonly tarball: string;
  /** The folder of the user; holds `node_modules/tidemark`. */
  readonly folder: string;
  /** The `node` binary of a major version. */
  readonly nodes: ReadonlyMap<number, string>;
  /** A new path that does not exist yet, for the data of one program. */
  dataDirectory(): string;
  remove(): Promise<void>;
}

/** Runs a program to its end and gives back what it said; a program that cannot be started rejects. */
export function run(
  file: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly path?: string; readonly input?: string },
): Promise<Output> {
  const path = [options.path, process.env["PATH"]].filter((part) => part !== undefined).join(delimiter);
  return new Promise((resolve, reject) => {
    const child = execFile(
      file,
      args,
      { cwd: options.cwd, env: { ...process.env, PATH: path }, timeout: 300_000, maxBuffer: 64 * 1024 * 1024 },
      (error, stdout, stderr) => {
        if (error === null) resolve({ exitCode: 0, stdout, stderr });
        else if (typeof error.code === "number") resolve({ exitCode: error.code, stdout, stderr });
        else reject(error);
      },
    );
    child.stdin?.end(options.input ?? "");
  });
}

/**
 * The same, for steps that must succeed.
 * @returns standard output
 */
export async function runOrFail(
  file: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly path?: string; readonly input?: string },
): Promise<string> {
  const { exitCode, stdout, stderr } = await run(file, args, options);
  if (exitCode !== 0) throw new Error(`${file} ${args.join(" ")}: exit code ${exitCode}\n${stdout}\n${stderr}`);
  return stdout;
}

/** A program of the repository's development dependencies. */
export function tool(name: string): string {
  return join(ROOT, "node_modules", ".bin", name);
}

/** Builds, packs and installs; and installs each version of Node. Takes the registry and the cache that npm is set up with. */
export async function install(): Promise<Installation> {
  const temporary = await mkdtemp(join(tmpdir(), "tidemark-package-"));
  const remove = () => rm(temporary, { recursive: true, force: true });
  try {
    const tarball = await packInto(temporary);
    const nodes = new Map<number, string>();
    for (const major of NODE_MAJORS) nodes.set(major, await installNode(major, join(temporary, `node-${major}`)));
    const folder = join(temporary, "user");
    await mkdir(folder);
    await runOrFail("npm", ["i", "--ignore-scripts", ...QUIET, tarball], { cwd: folder });
    let directories = 0;
    return { tarball, folder, nodes, dataDirectory: () => join(temporary, `data-${directories++}`), remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function packInto(folder: string): Promise<string> {
  await runOrFail(tool("tsc"), ["-b", "packages/tidemark"], { cwd: ROOT });
  const stdout = await runOrFail(process.execPath, ["tools/pack-tidemark.mjs", folder], { cwd: ROOT });
  return stdout.trim();
}

/** The npm package `node` needs its install script, which fetches the binary of this platform as a package of its own. */
async function installNode(major: number, folder: string): Promise<string> {
  await mkdir(folder);
  await runOrFail("npm", ["i", ...QUIET, `node@${major}`], { cwd: folder });
  return join(folder, "node_modules", "node", "bin", "node");
}

/** Adds the compilers that users have, at the versions of this repository and the last of the line before. */
export async function installCompilers(folder: string): Promise<void> {
  const versionOf = (name: string) =>
    (JSON.parse(readFileSync(join(ROOT, "node_modules", name, "package.json"), "utf8")) as { version: string }).version;
  await runOrFail(
    "npm",
    [
      "i",
      "--ignore-scripts",
      ...QUIET,
      `@types/node@${versionOf("@types/node")}`,
      `typescript@${versionOf("typescript")}`,
      "typescript-5@npm:typescript@5.9.3",
    ],
    { cwd: folder },
  );
}

/** Writes a program beside the installed package. `.mts` makes it a module in a folder without a `"type"`. */
export async function writeProgram(folder: string, name: string, text: string): Promise<void> {
  await writeFile(join(folder, `${name}.mts`), text);
}

/**
 * Compiles programs of the user's folder with every check a user may have on.
 * @param compiler path of the compiler's `tsc` below `node_modules`
 */
export function compile(folder: string, compiler: string, names: readonly string[]): Promise<Output> {
  const options = ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,esnext.disposable"];
  const checks = ["--skipLibCheck", "false", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess"];
  return run(
    process.execPath,
    [join("node_modules", compiler), ...options, ...checks, "--types", "node", ...names.map((name) => `${name}.mts`)],
    { cwd: folder },
  );
}

/** Folder that makes a version of Node the one that `#!/usr/bin/env node` finds. */
export function pathOf(node: string): string {
  return dirname(node);
}
