import { afterAll, describe, expect, test } from "vitest";
import type { FlushMode } from "@tidemark/log";
import type { ScriptReport } from "./crash-explorer.ts";
import { countedImages, crashJobs, DEFAULT_EFFORT } from "./crash-suite.ts";
import { FLOORS } from "./floors.ts";
import { cellsBelow, formatReports } from "./report-table.ts";

/** Violations shown of a script that fails. */
const VIOLATIONS_SHOWN = 5;

/** Opens that the suite makes: their errors are values, and a stack for each costs more than the open. */
const STACK_FRAMES = 0;

/** A part of the crashes of every script in one flush mode, one test a script, and the table of what was looked at. `npm run crash:full` does more. */
export function describeCrashes(flush: FlushMode, options: { readonly distinctMin: number }): void {
  describe(`crashes of a partition log with flush ${flush}`, () => {
    const reports: ScriptReport[] = [];
    const stackFrames = Error.stackTraceLimit;
    Error.stackTraceLimit = STACK_FRAMES;
    afterAll(() => {
      Error.stackTraceLimit = stackFrames;
      const opens = reports.reduce((sum, report) => sum + report.opens, 0);
      console.log(
        `flush ${flush}: distinct disk images by loss, first/second crash/crash in recovery; ${opens} opens\n${formatReports(reports)}`,
      );
    });

    for (const job of crashJobs(flush)) {
      test(`${job.script}: after every crash the log holds what it may and must`, async () => {
        const report = await job.explore(DEFAULT_EFFORT);
        reports.push(report);
        expect(report.violations.slice(0, VIOLATIONS_SHOWN), `${report.violations.length} violations`).toEqual([]);
        expect(cellsBelow(report, FLOORS[flush][job.script] ?? "")).toEqual([]);
      });
    }

    test(`at least ${options.distinctMin} distinct images, at most a tenth of them counted for tears of one write`, () => {
      expect(countedImages(reports)).toBeGreaterThanOrEqual(options.distinctMin);
    });
  });
}
