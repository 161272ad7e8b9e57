import { readdirSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { SimulatedDisk } from "@tidemark/simulator";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** Packages that reach the disk through the ports, and so run over a simulated one. */
const PACKAGES = ["base", "epoch-cache", "log", "replica", "server"];

/** Frames of a stack that are looked at: a sync is called from deep below whoever waits for it. */
const STACK_FRAMES = 60;

/** A place of the production source that has something synced, or calls what does: a file, a directory, or the state. */
export interface SyncSite {
  /** `packages/log/src/segment.ts:396` */
  readonly place: string;
  readonly text: string;
}

/** All of them, as they are written: `.sync(`, `.syncDirectory(`, and commits of the state that are not `sync: false`. */
export function syncSites(): readonly SyncSite[] {
  return PACKAGES.flatMap((name) => sourceFiles(`${ROOT}packages/${name}/src`)).flatMap((file) =>
    sitesIn(relative(ROOT, file), readFileSync(file, "utf8")),
  );
}

function sourceFiles(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !/\.(?:test|fixture)\.ts$/u.test(name))
    .map((name) => `${directory}/${name}`)
    .sort();
}

/** @param source text of a file */
export function sitesIn(file: string, source: string): readonly SyncSite[] {
  const sites: SyncSite[] = [];
  const lines = source.split("\n");
  for (const [at, line] of lines.entries()) {
    if (/^\s*(?:\*|\/\/|\/\*)/u.test(line)) continue;
    const calls = /\.(?:sync|syncDirectory)\(/u.test(line) || (/state\.commit\(/iu.test(line) && isSynced(lines, at));
    if (calls) sites.push({ place: `${file}:${at + 1}`, text: line.trim() });
  }
  return sites;
}

/** Of a commit that begins on this line: what its options say, wherever they stand in the call. */
function isSynced(lines: readonly string[], at: number): boolean {
  const call = lines.slice(at).join("\n");
  let depth = 0;
  for (let index = call.indexOf("commit("); index < call.length; index += 1) {
    if (call[index] === "(") depth += 1;
    if (call[index] === ")") depth -= 1;
    if (call[index] === ")" && depth === 0) return !/sync: false/u.test(call.slice(0, index));
  }
  return true;
}

/** One call that reached the disk. */
export interface SyncCall {
  readonly operation: "sync" | "syncDirectory";
  readonly path: string;
  /** Places of the production source in its stack, innermost first; empty where stacks are not looked at. */
  readonly places: readonly string[];
}

/** Counts the syncs of one machine after another, and makes one of them fail. */
export class SyncWatch {
  /** In the order of the calls. */
  readonly calls: SyncCall[] = [];
  readonly #failAt: number;
  readonly #looksAtStacks: boolean;

  /** @param failAt how many calls go well before the one that fails; `undefined`: all do, and their stacks are looked at */
  constructor(failAt: number | undefined) {
    this.#failAt = failAt ?? Number.POSITIVE_INFINITY;
    this.#looksAtStacks = failAt === undefined;
  }

  /** The call that has failed, if it has. */
  get struck(): SyncCall | undefined {
    return this.calls[this.#failAt];
  }

  /** From now on, before any other fault of the disk. */
  attach(disk: SimulatedDisk): void {
    for (const operation of ["sync", "syncDirectory"] as const) {
      disk.inject({
        operation,
        code: "EIO",
        // What a file system does: the pages count as clean, and readers go on seeing them, or see the old ones.
        pages: this.#failAt % 2 === 0 ? "new" : "old",
        count: Number.POSITIVE_INFINITY,
        isWanted: (path) => {
          this.calls.push({ operation, path, places: this.#looksAtStacks ? placesOfStack() : [] });
          return this.calls.length - 1 === this.#failAt;
        },
      });
    }
  }
}

function placesOfStack(): string[] {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = STACK_FRAMES;
  const { stack } = new Error("where");
  Error.stackTraceLimit = limit;
  const places: string[] = [];
  for (const [, path, line] of stack?.matchAll(/[ (](\/[^\s():]+):(\d+):\d+\)?$/gmu) ?? [])
    if (PACKAGES.some((name) => path?.startsWith(`${ROOT}packages/${name}/`)))
      places.push(`${relative(ROOT, path ?? "")}:${line}`);
  return places;
}

/** What a file is to a log directory: `.log`, `leader-epoch-checkpoint`, `directory`, `state`. */
export function kindOf({ operation, path }: SyncCall): string {
  if (operation === "syncDirectory") return "directory";
  const name = path.slice(path.lastIndexOf("/") + 1).replace(/\.tmp$/u, "");
  return /^\d{20}(\..+)$/u.exec(name)?.[1] ?? name;
}
