import type { FlushMode } from "@tidemark/log";
import type { Effort, ScriptReport } from "./crash-explorer.ts";
import { exploreScript } from "./log-subject.ts";
import { exploreNodeScript } from "./node-run.ts";
import { NODE_SCRIPTS } from "./node-scripts.ts";
import { SCRIPTS } from "./scripts.ts";

/** Of all images at most this share counts as tears of a single write, which are many and much alike. */
const TORN_SHARE_MAX = 0.1;

interface SuiteEffort extends Effort {
  /** An open of a whole directory costs several of a log: it gets so many times fewer. */
  readonly nodeShare: number;
}

/** For `npm test`. */
export const DEFAULT_EFFORT: SuiteEffort = {
  outcomesMax: { always: 64, none: 24 },
  secondCrashOneIn: { always: 320, none: 896 },
  secondCrashAfterKillOneIn: 12,
  secondOutcomesMax: 24,
  secondTornMax: 2,
  tearsEveryByte: false,
  stopsAtViolation: false,
  nodeShare: 4,
};

/** For `npm run crash:full`. */
export const FULL_EFFORT: SuiteEffort = {
  ...DEFAULT_EFFORT,
  outcomesMax: { always: 160, none: 96 },
  secondCrashOneIn: { always: 64, none: 160 },
  secondCrashAfterKillOneIn: 4,
  nodeShare: 4,
};

/** For a mutant: what a known script shows at once. */
export const MUTANT_EFFORT: SuiteEffort = {
  ...DEFAULT_EFFORT,
  outcomesMax: { always: 24, none: 24 },
  secondCrashOneIn: { always: 1_000, none: 1_000 },
  secondCrashAfterKillOneIn: 1_000,
  stopsAtViolation: true,
};

/** A script in one flush mode. */
export interface CrashJob {
  readonly script: string;
  readonly flush: FlushMode;
  explore(effort: SuiteEffort): Promise<ScriptReport>;
}

export function crashJobs(flush: FlushMode): readonly CrashJob[] {
  const logs = SCRIPTS.filter((script) => script.flush === undefined || script.flush === flush);
  return [
    ...logs.map((script) => ({
      script: script.name,
      flush,
      explore: (effort: SuiteEffort) => exploreScript(script, flush, effort),
    })),
    ...NODE_SCRIPTS.map((script) => ({
      script: script.name,
      flush,
      explore: (effort: SuiteEffort) => exploreNodeScript(script, flush, nodeEffort(effort)),
    })),
  ];
}

function nodeEffort(effort: SuiteEffort): Effort {
  const { nodeShare } = effort;
  const { always, none } = effort.outcomesMax;
  return {
    ...effort,
    outcomesMax: { always: always / nodeShare, none: none / nodeShare },
    secondCrashAfterKillOneIn: effort.secondCrashAfterKillOneIn * nodeShare,
    tearsEveryByte: false,
  };
}

/** Distinct images of all scripts; of those that only a torn write gives no more than their share. */
export function countedImages(reports: readonly ScriptReport[]): number {
  const torn = reports.reduce((sum, report) => sum + report.torn, 0);
  const others = reports.reduce((sum, report) => sum + report.total, 0) - torn;
  return others + Math.min(torn, Math.floor((others * TORN_SHARE_MAX) / (1 - TORN_SHARE_MAX)));
}
