// What seeds never reach in the engine: `npm run sim:coverage -- 1..200`. Per file how many of its functions ran, and the lines of what did
// not: functions, and branches of functions that did. The compiled packages are run, and their source maps lead back.
import { readFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { findSourceMap } from "node:module";
import { fileURLToPath } from "node:url";
import { simulate } from "@tidemark/simulation";

const ENGINE = /\/packages\/(?<file>(?:log|epoch-cache|replica)\/dist\/.*)\.js$/u;
/** Lines of one file that are named. */
const LINES_MAX = 40;

/** What V8 knows of a piece of code: of a function, or of a branch in it. */
interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

interface FileCoverage {
  readonly file: string;
  readonly functions: number;
  readonly reached: number;
  /** In the TypeScript source, ascending. */
  readonly unreachedLines: readonly number[];
}

const [, first = "1", last = first] = /^(\d+)(?:\.\.(\d+))?$/u.exec(process.argv[2] ?? "1..100") ?? [];
const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
let failed = 0;
for (let seed = Number(first); seed <= Number(last); seed += 1) {
  const { failure } = await simulate(seed);
  if (failure === undefined) continue;
  failed += 1;
  console.log(`seed ${seed}: ${failure.split("\n", 1)[0]}`);
}
const { result } = await session.post("Profiler.takePreciseCoverage");
const files = result.flatMap(({ url, functions }) => {
  const file = ENGINE.exec(url)?.groups?.["file"];
  return file === undefined ? [] : [coverageOf(url, file, functions)];
});
for (const { file, functions, reached, unreachedLines } of files.toSorted((one, other) =>
  one.file < other.file ? -1 : 1,
)) {
  if (unreachedLines.length === 0) continue;
  const named = unreachedLines.slice(0, LINES_MAX).join(" ");
  const more = unreachedLines.length > LINES_MAX ? ` and ${unreachedLines.length - LINES_MAX} more` : "";
  console.log(`${file}: ${reached} of ${functions} functions; never: ${named}${more}`);
}
const sum = (of: (file: FileCoverage) => number): number => files.reduce((total, file) => total + of(file), 0);
console.log(
  `seeds ${first} to ${last}: ${sum(({ reached }) => reached)} of ${sum(({ functions }) => functions)} functions reached, in ${files.length} files;`,
  `${sum(({ unreachedLines }) => unreachedLines.length)} places never; ${failed} seeds failed`,
);
if (failed > 0 || files.length === 0) process.exitCode = 1;

function coverageOf(
  url: string,
  file: string,
  functions: readonly { readonly ranges: readonly Range[] }[],
): FileCoverage {
  const path = fileURLToPath(url);
  const lineStarts = startsOf(readFileSync(path, "utf8"));
  const map = findSourceMap(path);
  // The first is the module itself.
  const own = functions.slice(1).flatMap(({ ranges }) => (ranges[0] === undefined ? [] : [ranges]));
  const unreached = own.flatMap((ranges) =>
    ranges[0]?.count === 0 ? ranges.slice(0, 1) : ranges.filter(({ count }) => count === 0),
  );
  const lines = unreached.map(({ startOffset }) => {
    const line = lineStarts.findLastIndex((start) => start <= startOffset);
    const entry = map?.findEntry(line, startOffset - (lineStarts[line] ?? 0));
    return entry !== undefined && "originalLine" in entry ? entry.originalLine + 1 : line + 1;
  });
  return {
    file: file.replace("/dist/", "/src/"),
    functions: own.length,
    reached: own.filter((ranges) => (ranges[0]?.count ?? 0) > 0).length,
    unreachedLines: [...new Set(lines)].toSorted((one, other) => one - other),
  };
}

function startsOf(text: string): readonly number[] {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}
