import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import {
  compile,
  install,
  type Installation,
  installCompilers,
  NODE_MAJORS,
  type Output,
  pathOf,
  ROOT,
  run,
  runOrFail,
  tool,
  writeProgram,
} from "./installation.ts";
import {
  COUNT_PROGRAM,
  ENDLESS_PROGRAM,
  CODECS_PROGRAM,
  LOWER_PROGRAM,
  TYPED_PROGRAM,
  WRONG_PROGRAM,
} from "./programs.ts";

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly scripts?: unknown;
  readonly devDependencies?: unknown;
}

const PROGRAMS = {
  typed: TYPED_PROGRAM,
  codecs: CODECS_PROGRAM,
  lower: LOWER_PROGRAM,
  endless: ENDLESS_PROGRAM,
  count: COUNT_PROGRAM,
} as const;
type ProgramName = keyof typeof PROGRAMS;

let installation: Installation;
let packageFolder: string;
let manifest: Manifest;
/** Paths of all files of the installed package, relative to it. */
let files: string[];

beforeAll(async () => {
  installation = await install();
  packageFolder = join(installation.folder, "node_modules", "tidemark");
  manifest = JSON.parse(await readFile(join(packageFolder, "package.json"), "utf8")) as Manifest;
  const entries = await readdir(packageFolder, { recursive: true, withFileTypes: true });
  files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(packageFolder.length + 1));
  await installCompilers(installation.folder);
  for (const [name, text] of Object.entries(PROGRAMS)) await writeProgram(installation.folder, name, text);
  await writeProgram(installation.folder, "wrong", WRONG_PROGRAM);
  // Also writes the programs that the tests below run; whether it was content is a test of its own.
  await compile(installation.folder, "typescript/bin/tsc", Object.keys(PROGRAMS));
});

afterAll(async () => {
  await installation?.remove();
});

describe("the tarball", () => {
  test("holds no test, no build state and no import of a workspace package", async () => {
    expect(files).toContain("README.md");
    expect(files).toContain("LICENSE");
    expect(files.filter((file) => /\.(test|fixture)\.|tsbuildinfo|\.tgz$/.test(file))).toEqual([]);
    const imports: string[] = [];
    for (const file of files.filter((name) => /^dist\/.*\.(js|d\.ts)$/.test(name))) {
      const text = await readFile(join(packageFolder, file), "utf8");
      if (/^(import|export)\b.*"@tidemark\//m.test(text)) imports.push(file);
    }
    expect(imports).toEqual([]);
  });

  test("has source maps that name files of the package", async () => {
    const maps = files.filter((file) => file.endsWith(".map"));
    expect(maps.length).toBeGreaterThan(20);
    const dangling: string[] = [];
    for (const map of maps) {
      const { sources } = JSON.parse(await readFile(join(packageFolder, map), "utf8")) as { sources: string[] };
      for (const source of sources) {
        const target = resolve(packageFolder, dirname(map), source).slice(packageFolder.length + 1);
        if (!files.includes(target)) dangling.push(`${map} -> ${source}`);
      }
    }
    expect(dangling).toEqual([]);
  });

  test("asks for exact versions, and for nothing at install time", () => {
    expect(Object.keys(manifest.dependencies)).toContain("lmdb");
    const wanted = Object.entries(manifest.dependencies).map(([name, version]) => `${name}@${version}`);
    expect(wanted.filter((dependency) => !/^(?!@tidemark\/).+@\d+\.\d+\.\d+$/.test(dependency))).toEqual([]);
    expect(manifest.scripts).toBeUndefined();
    expect(manifest.devDependencies).toBeUndefined();
  });

  test("passes publint --strict", async () => {
    const output = await run(tool("publint"), [installation.tarball, "--strict"], { cwd: ROOT });
    expect(output).toMatchObject({ exitCode: 0 });
  });

  test("passes attw for a package that is ESM only", async () => {
    const output = await run(tool("attw"), [installation.tarball, "--profile", "esm-only"], { cwd: ROOT });
    expect(output).toMatchObject({ exitCode: 0 });
  });
});

describe("a typed program", () => {
  test.each([
    ["this repository's TypeScript", "typescript/bin/tsc"],
    ["TypeScript 5", "typescript-5/bin/tsc"],
  ])("compiles with %s, strict, nodenext, with library checks", async (_name, compiler) => {
    expect(await compile(installation.folder, compiler, Object.keys(PROGRAMS))).toMatchObject({
      exitCode: 0,
      stdout: "",
    });
  });

  test("that gives a bare number for an offset does not compile", async () => {
    const output = await compile(installation.folder, "typescript/bin/tsc", ["wrong"]);
    expect(output.exitCode).not.toBe(0);
    expect(output.stdout).toContain("wrong.mts(3,");
    expect(output.stdout).toContain("TS2322");
  });
});

describe.each(NODE_MAJORS)("on Node %i", (major) => {
  /** Runs a compiled program of the user with this version and gives back what it printed. */
  function runProgram(name: ProgramName, directory = installation.dataDirectory(), folder = installation.folder) {
    return run(installation.nodes.get(major) ?? "", [`${name}.mjs`, directory], { cwd: folder });
  }

  /** Runs the installed `tidemark` command with this version of Node. */
  function tidemark(args: readonly string[], input?: string) {
    const path = pathOf(installation.nodes.get(major) ?? "");
    return runOrFail(join(installation.folder, "node_modules", ".bin", "tidemark"), args, {
      cwd: installation.folder,
      path,
      ...(input === undefined ? {} : { input }),
    });
  }

  test("is that version", async () => {
    const stdout = await runOrFail(installation.nodes.get(major) ?? "", ["--version"], { cwd: installation.folder });
    expect(stdout).toMatch(new RegExp(`^v${major}\\.`));
  });

  test("a program opens, appends, closes, opens again and fetches", async () => {
    const output = await runProgram("typed");
    expect(output).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(output.stdout)).toEqual({
      offsets: [0, 1, 2],
      values: ['{"total":7}', "second", "third", "third"],
      code: "CLOSED",
      clean: true,
      doors: ["function", 0],
    });
  });

  test("a partition log works without a node around it", async () => {
    const output = await runProgram("lower");
    expect(output).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(output.stdout)).toEqual({ baseOffset: 0, epoch: 3 });
  });

  test("every codec goes through the worker threads and comes back", async () => {
    const output = await runProgram("codecs");
    expect(output).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(output.stdout)).toEqual({ results: ["gzip: 4", "snappy: 4", "lz4: 4", "zstd: 4"] });
  });

  test("without the worker's file nothing is compressed, so that it was the worker that did it", async () => {
    const folder = await mkdtemp(join(tmpdir(), "tidemark-no-worker-"));
    try {
      await cp(installation.folder, folder, { recursive: true, verbatimSymlinks: true });
      await rm(join(folder, "node_modules", "tidemark", "dist", "runtime-node", "worker.js"));
      const output = await runProgram("codecs", installation.dataDirectory(), folder);
      expect(JSON.parse(output.stdout)).toEqual({ results: [] });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("everything acknowledged is there after SIGKILL, and meanwhile a second process is refused", async () => {
    const directory = installation.dataDirectory();
    const child = spawn(installation.nodes.get(major) ?? "", ["endless.mjs", directory], { cwd: installation.folder });
    const ended = once(child, "close");
    let printed = "";
    let refused: Output | undefined;
    for await (const chunk of child.stdout) {
      printed += String(chunk);
      refused ??= await runProgram("count", directory);
      if (printed.length > 10_000) child.kill("SIGKILL");
    }
    await ended;
    expect(refused?.exitCode).not.toBe(0);
    expect(refused?.stderr).toContain("LOG_DIRECTORY_LOCKED");
    const acknowledged = printed.slice(0, printed.lastIndexOf("\n")).split("\n").length;
    const output = await runProgram("count", directory);
    expect(output).toMatchObject({ exitCode: 0, stderr: "" });
    const { count } = JSON.parse(output.stdout) as { count: number };
    expect(count).toBeGreaterThanOrEqual(acknowledged);
    expect(count).toBeLessThanOrEqual(acknowledged + 1);
  });

  test("the command tells its version", async () => {
    expect(await tidemark(["--version"])).toBe(`${manifest.version}\n`);
  });

  test("the command appends, fetches and verifies", async () => {
    const directory = installation.dataDirectory();
    await tidemark(["append", "orders", "--directory", directory], "one\ntwo\n\nfour\n");
    expect(await tidemark(["fetch", "orders", "--directory", directory])).toBe("one\ntwo\n\nfour\n");
    await tidemark(["verify", directory]);
  });
});

test("a seed gives the same history on every version of Node, step by step", async () => {
  const histories = await Promise.all(
    NODE_MAJORS.map(async (major) => {
      const program = join(installation.folder, "node_modules", ".bin", "tidemark");
      const path = pathOf(installation.nodes.get(major) ?? "");
      const args = ["simulate", "--seed", "24", "--trace", "--html", join(installation.folder, `page-${major}.html`)];
      const printed = await runOrFail(program, args, { cwd: installation.folder, path });
      return printed.split("\n").filter((line) => /^ +\d+\.\d{6} |^hash /u.test(line));
    }),
  );
  expect(histories[0]?.length).toBeGreaterThan(100);
  for (const history of histories) expect(history).toEqual(histories[0]);
});

test("npm install in the repository stops at once and says what to type", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tidemark-npm-install-"));
  try {
    const workspace = join(folder, "tidemark");
    await mkdir(workspace);
    for (const name of ["package.json", "pnpm-workspace.yaml", "pnpm-lock.yaml"]) {
      await writeFile(join(workspace, name), await readFile(join(ROOT, name)));
    }
    const output = await run("npm", ["install"], { cwd: workspace });
    expect(output.exitCode).not.toBe(0);
    expect(output.stderr).toContain("not-for-npm--type-npm-start-or-npm-test");
    expect((await readdir(workspace)).toSorted()).toEqual(["package.json", "pnpm-lock.yaml", "pnpm-workspace.yaml"]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
