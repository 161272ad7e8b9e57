// What seeds reach in the engine, and what they never do: `npm run sim:coverage -- 1..200`. Per file how many of its functions ran, and the
// lines of what did not: functions, and branches of functions that did; then how often each mark was passed. With `--json` the marks alone.
// The compiled packages are run, and their source maps lead back.
import { readFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { findSourceMap } from "node:module";
import { fileURLToPath } from "node:url";
import { simulate } from "@tidemark/simulation";
import { MARKS, placeOf } from "./marks.ts";
import type { Mark } from "./marks.ts";

const ENGINE = /\/packages\/(?<file>(?:log|epoch-cache|replica)\/dist\/.*\.js)$/u;
/** Lines of one file that are named. */
const LINES_MAX = 40;

/** What V8 knows of a piece of code: of a function, or of a branch in it. */
interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

/** A compiled module. */
interface Module {
  /** Below the directory of the packages. */
  readonly file: string;
  readonly path: string;
  readonly code: string;
  /** Of each function its own range, and those of its branches. The first function is the module itself. */
  readonly functions: readonly (readonly Range[])[];
}

const [, first = "1", last = first] = /^(\d+)(?:\.\.(\d+))?$/u.exec(process.argv[2] ?? "1..100") ?? [];
const isJson = process.argv.includes("--json");
const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
const failures: string[] = [];
for (let seed = Number(first); seed <= Number(last); seed += 1) {
  const { failure } = await simulate(seed);
  if (failure !== undefined) failures.push(`seed ${seed}: ${failure.split("\n", 1)[0]}`);
}
const { result } = await session.post("Profiler.takePreciseCoverage");
const modules = result.flatMap(({ url, functions }): Module[] => {
  const file = ENGINE.exec(url)?.groups?.["file"];
  if (file === undefined) return [];
  const path = fileURLToPath(url);
  return [{ file, path, code: readFileSync(path, "utf8"), functions: functions.map(({ ranges }) => ranges) }];
});
const marks = MARKS.map((mark) => ({ id: mark.id, times: timesPassed(mark) }));
if (isJson) console.log(JSON.stringify({ failures, marks }));
else report();
if (failures.length > 0 || modules.length === 0) process.exitCode = 1;

function report(): void {
  let [functions, reached, placesNever] = [0, 0, 0];
  for (const module of modules.toSorted((one, other) => (one.file < other.file ? -1 : 1))) {
    const own = module.functions.slice(1);
    const ran = own.filter(([range]) => (range?.count ?? 0) > 0);
    const lines = unreachedLines(module, own);
    functions += own.length;
    reached += ran.length;
    placesNever += lines.length;
    if (lines.length === 0) continue;
    const named = lines.slice(0, LINES_MAX).join(" ");
    const more = lines.length > LINES_MAX ? ` and ${lines.length - LINES_MAX} more` : "";
    const source = module.file.replace("/dist/", "/src/").replace(/js$/u, "ts");
    console.log(`${source}: ${ran.length} of ${own.length} functions; never: ${named}${more}`);
  }
  for (const { id, times } of marks.toSorted((one, other) => one.times - other.times)) console.log(`${times} x ${id}`);
  for (const failure of failures) console.log(failure);
  console.log(
    `seeds ${first} to ${last}: ${reached} of ${functions} functions reached, in ${modules.length} files; ${placesNever} places never;`,
    `${marks.filter(({ times }) => times > 0).length} of ${marks.length} marks passed; ${failures.length} seeds failed`,
  );
}

/** @throws Error when the place of the mark is gone, or its module was not loaded */
function timesPassed(mark: Mark): number {
  const module = modules.find(({ file }) => file === mark.file);
  if (module === undefined) throw new Error(`mark ${mark.id}: ${mark.file} was not loaded`);
  const offset = placeOf(mark, module.code);
  const around = module.functions.flat().filter((range) => range.startOffset <= offset && offset < range.endOffset);
  const sizeOf = ({ startOffset, endOffset }: Range): number => endOffset - startOffset;
  return around.toSorted((one, other) => sizeOf(one) - sizeOf(other))[0]?.count ?? 0;
}

/** In the TypeScript source, ascending. */
function unreachedLines({ path, code }: Module, functions: readonly (readonly Range[])[]): readonly number[] {
  const starts = [0];
  for (let at = code.indexOf("\n"); at >= 0; at = code.indexOf("\n", at + 1)) starts.push(at + 1);
  const map = findSourceMap(path);
  const unreached = functions.flatMap((ranges) =>
    ranges[0]?.count === 0 ? ranges.slice(0, 1) : ranges.filter(({ count }) => count === 0),
  );
  const lines = unreached.map(({ startOffset }) => {
    const line = starts.findLastIndex((start) => start <= startOffset);
    const entry = map?.findEntry(line, startOffset - (starts[line] ?? 0));
    return entry !== undefined && "originalLine" in entry ? entry.originalLine + 1 : line + 1;
  });
  return [...new Set(lines)].toSorted((one, other) => one - other);
}
