import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");

export interface CodeBlock {
  /** `README.md:24`: where the block begins. */
  readonly place: string;
  readonly language: string;
  readonly code: string;
}

export interface Document {
  /** Relative to the root. */
  readonly path: string;
  readonly text: string;
}

/** README.md, everything under docs/, and the README of each package. */
export function documents(): Document[] {
  const packages = readdirSync(join(ROOT, "packages")).map((name) => join(ROOT, "packages", name, "README.md"));
  return [join(ROOT, "README.md"), ...markdownIn(join(ROOT, "docs")), ...packages].flatMap((path) => {
    try {
      return [{ path: relative(ROOT, path), text: readFileSync(path, "utf8") }];
    } catch {
      return []; // Not every package has one.
    }
  });
}

/** Fenced blocks in order. */
export function codeBlocks(document: Document): CodeBlock[] {
  const blocks: CodeBlock[] = [];
  let open: { line: number; language: string; lines: string[] } | undefined;
  for (const [at, line] of document.text.split("\n").entries()) {
    const fence = /^```(\w*)\s*$/.exec(line);
    if (fence === null) open?.lines.push(line);
    else if (open === undefined) open = { line: at + 1, language: fence[1] ?? "", lines: [] };
    else {
      blocks.push({ place: `${document.path}:${open.line}`, language: open.language, code: open.lines.join("\n") });
      open = undefined;
    }
  }
  if (open !== undefined) throw new Error(`${document.path}:${open.line}: the block does not end`);
  return blocks;
}

/** Every file below `test`, `tools` and each package's `src`, relative to the root. */
export function sourceFiles(): string[] {
  const places = readdirSync(join(ROOT, "packages")).map((name) => join("packages", name, "src"));
  return [...places, "test", "tools"]
    .flatMap((place) => filesIn(join(ROOT, place)))
    .map((path) => relative(ROOT, path));
}

function markdownIn(directory: string): string[] {
  return filesIn(directory).filter((path) => path.endsWith(".md"));
}

function filesIn(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    if (entry.name === "node_modules") return [];
    return entry.isDirectory() ? filesIn(path) : [path];
  });
}
