import type { Mutant } from "@tidemark/simulator";
import { STORAGE_MUTANTS } from "@tidemark/simulator";
import { beforeAll, describe, expect, test } from "vitest";
import { withMutant } from "../simulation/mutated.ts";
import { failEverySync, syncJobs } from "./sync-matrix.ts";
import type { Matrix } from "./sync-matrix.ts";
import { sitesIn, syncSites } from "./sync-sites.ts";
import type { SyncSite } from "./sync-sites.ts";
import type { Told } from "./synced-run.ts";

/** Of syncs that come from the same places so many fail. `SYNC_MATRIX=all`: every one, some 6,000. */
const SAME_MAX = process.env["SYNC_MATRIX"] === "all" ? Number.POSITIVE_INFINITY : 2;
/** Floor, so that a matrix that stops looking cannot pass. */
const FAILURES_MIN = 300;

const TOLD: readonly Told[] = ["an open", "a call", "the next call", "the close"];

/** Places that no script here comes to, and why that is right. */
const ELSEWHERE: readonly { readonly file: string; readonly text: RegExp; readonly reason: string }[] = [
  {
    file: "packages/replica/src/replica-manager.ts",
    text: /FAILED_BOOT_KEY/u,
    reason: "made behind a failed sync, as well as it goes; seeds (syncError)",
  },
  {
    file: "packages/replica/src/replica-manager.ts",
    text: /logs\.state\.commit\(puts, \{ sync \}\)/u,
    reason: "high watermarks of a broker that stops; seeds (syncError)",
  },
  {
    file: "packages/server/src/node-directory.ts",
    text: /directoryOf\(directory\)\);$/u,
    reason: "lmdb files that are damaged, which the simulated state never is",
  },
];

describe("every sync is made to fail", () => {
  let matrix: Matrix = { rows: [], failures: 0, problems: [] };
  beforeAll(async () => {
    matrix = await failEverySync(await syncJobs(), SAME_MAX);
  }, 600_000);

  test("nothing is acknowledged behind it, it is not tried again, and the next start finds what was acknowledged before", () => {
    expect(matrix.problems).toEqual([]);
    expect(matrix.failures).toBeGreaterThan(FAILURES_MIN);
  });

  test("no place of the source that syncs is left out", () => {
    const sites = syncSites();
    console.log(`${matrix.failures} syncs failed; by place and file, who heard of it first\n${tableOf(matrix, sites)}`);
    const unreached = sites.filter(({ place }) => !matrix.rows.some((row) => row.place === place));
    const excused = unreached.filter((site) => excuseOf(site) !== undefined);
    expect(unreached.filter((site) => excuseOf(site) === undefined)).toEqual([]);
    expect(excused).toHaveLength(ELSEWHERE.length);
  });
});

function excuseOf({ place, text }: SyncSite): string | undefined {
  return ELSEWHERE.find((one) => place.startsWith(`${one.file}:`) && one.text.test(text))?.reason;
}

function tableOf(matrix: Matrix, sites: readonly SyncSite[]): string {
  const lines = matrix.rows
    .filter(({ place }) => sites.some((site) => site.place === place))
    .map(({ place, kind, told }) => ({
      name: `${place.replace("packages/", "").replace("src/", "")} ${kind}`,
      cells: TOLD.map((who) => String(told.get(who) ?? 0)),
    }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  const width = Math.max(...lines.map(({ name }) => name.length), 0);
  const head = { name: "", cells: [...TOLD] };
  return [head, ...lines]
    .map(({ name, cells }) => name.padEnd(width) + cells.map((cell) => cell.padStart(15)).join(""))
    .join("\n");
}

test("a place that syncs is found by how it is written", () => {
  const source = [
    "await file.sync();",
    "// await file.sync();",
    "await this.#files.syncDirectory(path);",
    "await state.commit(puts, { sync: true });",
    "await state.commit(puts, { sync: false });",
    "await this.#state.commit(",
    "  puts,",
    "  { sync: durably },",
    ");",
    "syncDirectory(directory: string): Promise<void>;",
  ].join("\n");
  expect(sitesIn("a.ts", source).map(({ place }) => place)).toEqual(["a.ts:1", "a.ts:3", "a.ts:4", "a.ts:6"]);
});

/** Bugs of the kind that this is for, each with the history that shows it. */
const PLANTED: readonly (readonly [string, Mutant])[] = [
  ...STORAGE_MUTANTS.filter(({ id }) => id === "M15").map((mutant) => ["append x3, flush always", mutant] as const),
  [
    "append x3, flush none",
    {
      id: "swallowed",
      title: "an open passes over a failed sync of the directory",
      edits: [
        {
          file: "packages/log/src/load-log.ts",
          find: `  if (!surveyed.isTrusted || areNamesChanged) await files.syncDirectory(directory);`,
          replace: `  if (!surveyed.isTrusted || areNamesChanged) await files.syncDirectory(directory).catch(() => undefined);`,
        },
      ],
    },
  ],
  [
    "compaction, and another pass, flush none",
    {
      id: "repeated",
      title: "a flush begins behind one that has failed",
      edits: [
        {
          file: "packages/log/src/log-flush.ts",
          find: `    const stop = this.#events.stop();\n    if (stop !== undefined) throw stop;\n`,
          replace: ``,
        },
        {
          file: "packages/log/src/log-flush.ts",
          find: `    if (this.#events.stop() !== undefined) return;\n`,
          replace: ``,
        },
      ],
    },
  ],
];

test.each(PLANTED.map(([name, mutant]) => [mutant.title, name, mutant] as const))(
  "noticed: %s (%s)",
  async (_title, name, mutant) => {
    const problems = await withMutant(mutant, "test/crash/sync-matrix.ts", async (module) => {
      const suite = module as { syncJobs: typeof syncJobs; failEverySync: typeof failEverySync };
      const jobs = (await suite.syncJobs()).filter((job) => job.name === name);
      return (await suite.failEverySync(jobs, Number.POSITIVE_INFINITY)).problems;
    });
    expect(problems.join("\n")).toMatch(/S14/u);
  },
);

test("the list of planted bugs is whole", () => {
  expect(PLANTED).toHaveLength(3);
});
