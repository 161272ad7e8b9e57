import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { codeBlocks, documents, ROOT, sourceFiles } from "./documents.ts";

const run = promisify(execFile);
const SOURCES = ["--import", import.meta.resolve("tsx"), "--conditions=tidemark-source"];
/** Shown, not run: drawings and file contents. */
const NOT_CODE = new Set(["text"]);

const all = documents();
const blocks = all.flatMap(codeBlocks).filter(({ language }) => !NOT_CODE.has(language));

/** A user's folder: the package is installed, the command is on the path. */
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tidemark-docs-"));
  await mkdir(join(folder, "node_modules"));
  await mkdir(join(folder, "bin"));
  await symlink(join(ROOT, "packages/tidemark"), join(folder, "node_modules/tidemark"));
  const command = `#!/bin/sh\nexec "${process.execPath}" ${SOURCES.join(" ")} "${join(ROOT, "packages/cli/src/main.ts")}" "$@"\n`;
  await writeFile(join(folder, "bin/tidemark"), command);
  await chmod(join(folder, "bin/tidemark"), 0o755);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

async function emptyDirectory(): Promise<string> {
  const directory = await mkdtemp(join(folder, "run-"));
  await symlink(join(folder, "node_modules"), join(directory, "node_modules"));
  return directory;
}

describe("code in the documents", () => {
  test("there is some, and all of it is in a language that is run here", () => {
    expect(blocks.length).toBeGreaterThan(2);
    expect(blocks.filter(({ language }) => !["ts", "sh"].includes(language))).toEqual([]);
  });

  test.each(blocks.filter(({ language }) => language === "ts"))("$place runs", async ({ code }) => {
    const directory = await emptyDirectory();
    await writeFile(join(directory, "package.json"), '{ "type": "module" }');
    await writeFile(join(directory, "example.ts"), code);
    const { stderr } = await run(process.execPath, [...SOURCES, "example.ts"], { cwd: directory });
    expect(stderr).toBe("");
  });

  test.each(blocks.filter(({ language }) => language === "sh"))("$place runs", async ({ code, place }) => {
    const scripts = Object.keys(JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")).scripts);
    const lines = code.split("\n").filter((line) => line.trim() !== "");
    // The project's own scripts run this test; that each exists is what is left to check.
    const ofProject = lines.flatMap((line) => /^p?npm (?:run )?([\w:]+)/.exec(line)?.[1] ?? []);
    expect(
      ofProject.filter((script) => !scripts.includes(script)),
      place,
    ).toEqual([]);
    const rest = lines.filter((line) => !/^p?npm /.test(line));
    if (rest.length === 0) return;
    const directory = await emptyDirectory();
    const PATH = `${join(folder, "bin")}:${process.env["PATH"] ?? ""}`;
    const { stdout } = await run("bash", ["-euo", "pipefail", "-c", rest.join("\n")], {
      cwd: directory,
      env: { ...process.env, PATH },
    });
    expect(stdout).not.toBe("");
  });
});

describe("what the documents name exists", () => {
  const files = sourceFiles();
  const names = new Set(files.map((path) => path.slice(path.lastIndexOf("/") + 1)));
  const sources = files
    .filter((path) => path.startsWith("packages/"))
    .map((path) => readFileSync(join(ROOT, path), "utf8"))
    .join("\n");

  test.each(all)("$path", ({ path, text }) => {
    const prose = text.replaceAll(/^```[\s\S]*?^```/gm, "");
    const quoted = [...prose.matchAll(/`([^`\n]+)`/g)].map((match) => match[1] ?? "");
    const missing = quoted.filter((name) => {
      if (/^(packages|test|docs|tools)\/[\w./-]+$/.test(name)) return !existsSync(join(ROOT, name));
      if (/^[\w-]+\.(ts|mjs)$/.test(name)) return !names.has(name);
      if (/^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$/.test(name)) return !new RegExp(`\\b${name}\\b`).test(sources);
      return false;
    });
    const links = [...prose.matchAll(/\]\(([^)#]+)\)/g)]
      .map((match) => match[1] ?? "")
      .filter((link) => !/^https?:/.test(link));
    const broken = links.filter((link) => !existsSync(join(ROOT, dirname(path), link)));
    expect([missing, broken]).toEqual([[], []]);
  });
});
