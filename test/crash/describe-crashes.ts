import { afterAll, describe, expect, test } from "vitest";
import type { FlushMode } from "@tidemark/log";
import { exploreScript } from "./crash-explorer.ts";
import type { ScriptReport } from "./crash-explorer.ts";
import { FLOORS } from "./floors.ts";
import { countsOf, formatReports } from "./report-table.ts";
import { SCRIPTS } from "./scripts.ts";

/** Violations shown of a script that fails. */
const VIOLATIONS_SHOWN = 5;

/** Opens that the suite makes: their errors are values, and a stack for each costs more than the open. */
const STACK_FRAMES = 0;

/** Of all images at most this share may be tears of a single write, which are many and much alike. */
const TORN_SHARE_MAX = 0.1;

/** Every crash of every script in one flush mode, one test a script, and the table of what was looked at. */
export function describeCrashes(flush: FlushMode, options: { readonly distinctMin: number }): void {
  describe(`crashes of a partition log with flush ${flush}`, () => {
    const reports: ScriptReport[] = [];
    const stackFrames = Error.stackTraceLimit;
    Error.stackTraceLimit = STACK_FRAMES;
    afterAll(() => {
      Error.stackTraceLimit = stackFrames;
      const opens = reports.reduce((sum, report) => sum + report.opens, 0);
      console.log(`flush ${flush}: distinct disk images by loss rule, ${opens} opens\n${formatReports(reports)}`);
    });

    for (const script of SCRIPTS) {
      if (script.flush !== undefined && script.flush !== flush) continue;
      test(`${script.name}: after every crash the log holds what it may and must`, async () => {
        const report = await exploreScript(script, flush);
        reports.push(report);
        expect(report.violations.slice(0, VIOLATIONS_SHOWN), `${report.violations.length} violations`).toEqual([]);
        const floors: Readonly<Record<string, readonly number[]>> = FLOORS[flush];
        const counts = countsOf(report);
        expect(floors[script.name]).toHaveLength(counts.length);
        expect(counts.map((count, at) => Math.min(count, floors[script.name]?.[at] ?? 0))).toEqual(floors[script.name]);
      });
    }

    test(`at least ${options.distinctMin} distinct images, at most a tenth of them by tearing one write`, () => {
      const distinct = reports.reduce((sum, report) => sum + report.total, 0);
      const torn = reports.reduce((sum, report) => sum + (report.distinct.get("torn-write") ?? 0), 0);
      expect(distinct).toBeGreaterThanOrEqual(options.distinctMin);
      expect(torn / distinct).toBeLessThanOrEqual(TORN_SHARE_MAX);
    });
  });
}
