import type { FlushMode, LogConfig } from "@tidemark/log";
import { batchOf } from "./log-model.ts";
import type { ScriptRun } from "./script-run.ts";

/** A history whose every crash is explored. */
export interface Script {
  readonly name: string;
  readonly config?: Partial<LogConfig>;
  /** Only in this mode does the script mean anything. */
  readonly flush?: FlushMode;
  /** Every write of it is torn at every byte, whatever the effort. */
  readonly tearsEveryByte?: boolean;
  play(run: ScriptRun): Promise<void>;
}

const WIDE: Partial<LogConfig> = { segmentBytes: 4096, indexIntervalBytes: 150 };

/** Two batches of one record fill a segment to its last byte. */
const EXACT: Partial<LogConfig> = { segmentBytes: 2 * batchOf(0, 1).length };

/** Three batches with one record and a key of two bytes fill a segment. */
const KEYED: Partial<LogConfig> = { segmentBytes: 3 * batchOf(0, 1, { key: "k0" }).length };

/** Markers carry the time of the simulated clock, which is years after that of the batches: no segment ends for that. */
const TIMELESS: Partial<LogConfig> = { segmentMs: Number.MAX_SAFE_INTEGER };

/** Producers with transactions. */
const [ANNA, BERT] = [11, 12] as const;

/** A batch with this value is a little over 4 KiB. */
const LARGE_VALUE_BYTES = 4_024;

/** Not 0, so that a lost epoch field, which reads as zeros, shows. */
const FIRST_EPOCH = 3;

async function lead(run: ScriptRun, ...recordCounts: number[]): Promise<void> {
  await run.open();
  await run.becomeLeader(FIRST_EPOCH);
  for (const count of recordCounts) await run.append(count);
}

export const SCRIPTS: readonly Script[] = [
  { name: "append x3", play: (run) => lead(run, 1, 2, 1) },
  {
    name: "appends in one group",
    async play(run) {
      await lead(run);
      await run.append(1, 2, 1);
      await run.append(2, 1);
    },
  },
  {
    name: "append across index intervals",
    config: WIDE,
    async play(run) {
      await lead(run, 1, 1, 2, 1, 1);
      await run.roll();
      await run.append(1);
    },
  },
  {
    name: "roll by size",
    play: (run) => lead(run, 1, 1, 2, 3, 1, 1),
  },
  {
    name: "roll on demand",
    async play(run) {
      await lead(run, 2);
      await run.roll();
      await run.roll();
      await run.append(1);
      await run.roll();
      await run.append(2);
    },
  },
  { name: "roll exactly at the limit", config: EXACT, play: (run) => lead(run, 1, 1, 1, 1, 1) },
  {
    name: "one group across two rolls",
    config: EXACT,
    async play(run) {
      await lead(run, 1);
      await run.append(1, 1, 1, 1, 1);
      await run.append(1, 1);
    },
  },
  {
    name: "truncate inside a segment",
    config: WIDE,
    async play(run) {
      await lead(run, 1, 1, 2, 1);
      await run.truncateTo(2);
      await run.append(1);
    },
  },
  {
    name: "truncate inside a batch",
    config: WIDE,
    async play(run) {
      await lead(run, 1, 3, 1);
      await run.truncateTo(2);
      await run.flush();
      await run.append(2);
    },
  },
  {
    name: "truncate at a segment border",
    config: EXACT,
    async play(run) {
      await lead(run, 1, 1, 1, 1);
      await run.truncateTo(2);
      await run.append(1);
    },
  },
  {
    name: "truncate to 0",
    async play(run) {
      await lead(run, 1, 2, 1, 1);
      await run.truncateTo(0);
      await run.append(2);
    },
  },
  {
    name: "truncate whole newer segments",
    config: EXACT,
    async play(run) {
      await lead(run, 1, 1, 1, 1, 1, 1);
      await run.truncateTo(1);
      await run.append(1);
    },
  },
  {
    name: "truncate fully and start at 100",
    async play(run) {
      await lead(run, 1, 2, 1);
      await run.truncateFullyAndStartAt(100);
      await run.becomeLeader(5);
      await run.append(1);
    },
  },
  {
    name: "epoch change",
    async play(run) {
      await lead(run, 1);
      await run.becomeLeader(4);
      await run.append(1);
      await run.becomeLeader(6);
      await run.becomeLeader(7);
      await run.append(2);
      await run.becomeLeader(9);
    },
  },
  {
    name: "epoch checkpoint rewrite",
    async play(run) {
      await lead(run, 1);
      await run.becomeLeader(4);
      await run.append(2);
      await run.truncateTo(1);
      await run.becomeLeader(5);
      await run.append(1);
    },
  },
  {
    name: "recovery point checkpoint",
    async play(run) {
      await lead(run, 1, 1);
      await run.flush();
      await run.append(2);
      await run.flush();
      await run.truncateTo(1);
      await run.append(1);
    },
  },
  {
    name: "clean shutdown",
    async play(run) {
      await lead(run, 1, 2);
      await run.close();
      await run.open({ clean: true });
      await run.becomeLeader(4);
      await run.append(1);
      await run.close();
    },
  },
  {
    name: "recovery itself",
    async play(run) {
      await lead(run, 1, 2, 1);
      run.killProcess();
      await run.checkRotOutsideCrc();
      await run.open();
      await run.becomeLeader(4);
      await run.append(2);
    },
  },
  {
    name: "recovery between truncations",
    async play(run) {
      await lead(run, 1, 2, 1, 2);
      await run.truncateTo(4);
      run.killProcess();
      await run.open();
      await run.becomeLeader(4);
      await run.append(1, 1);
      await run.truncateTo(1);
      await run.append(2);
    },
  },
  {
    name: "failed sync, then recovery",
    flush: "always",
    async play(run) {
      await lead(run, 1, 1);
      run.inject({ operation: "sync", path: ".log", code: "EIO", pages: "new" });
      await run.failAppend(1, { mayReturn: true });
      run.killProcess();
      await run.open();
      await run.becomeLeader(4);
      await run.append(1);
    },
  },
  {
    name: "disk full, then space",
    async play(run) {
      await lead(run, 1);
      run.inject({ operation: "write", path: ".log", code: "ENOSPC", written: "part" });
      await run.failAppend(2, { mayReturn: false });
      await run.append(1);
    },
  },
  {
    name: "follower appends",
    async play(run) {
      await run.open();
      await run.appendAsFollower(3, 3);
      await run.appendAsFollower(5, 8);
      await run.truncateTo(3);
      await run.appendAsFollower(9);
    },
  },
  {
    name: "append of 4 KiB",
    config: { segmentBytes: 16_384 },
    tearsEveryByte: true,
    async play(run) {
      await lead(run, 1);
      await run.appendLarge(LARGE_VALUE_BYTES);
      await run.append(1);
    },
  },
  {
    name: "batches sent again",
    config: EXACT,
    async play(run) {
      await lead(run, 1, 1, 1);
      await run.appendAgain();
      await run.truncateTo(2);
      await run.appendAgain();
      run.killProcess();
      await run.open();
      await run.becomeLeader(4);
      await run.appendAgain();
      await run.append(1);
    },
  },
  {
    name: "epoch cache cut from the tail",
    config: WIDE,
    async play(run) {
      await lead(run, 1);
      await run.becomeLeader(4);
      await run.append(1, 1);
      await run.becomeLeader(6);
      await run.append(1);
      await run.becomeLeader(8);
      await run.truncateTo(4);
      await run.truncateTo(2);
      await run.becomeLeader(9);
      await run.append(1);
    },
  },
  {
    name: "log start raised, epoch cache cut from the head",
    config: EXACT,
    async play(run) {
      await lead(run, 1, 1);
      await run.becomeLeader(4);
      await run.append(1);
      await run.becomeLeader(6);
      await run.append(2);
      await run.close();
      await run.raiseStart(3);
      await run.open();
      await run.becomeLeader(7);
      await run.append(1);
    },
  },
  {
    name: "flush after a kill over several segments",
    flush: "none",
    config: { ...EXACT, indexIntervalBytes: 1 },
    async play(run) {
      await lead(run, 1, 1, 1);
      run.killProcess();
      await run.open();
      await run.flush();
    },
  },
  {
    name: "index rebuild",
    config: { segmentBytes: 700, indexIntervalBytes: 90 },
    async play(run) {
      await lead(run, 1, 1, 1);
      await run.roll();
      await run.append(1, 1);
      await run.close();
      await run.removeFile("00000000000000000000.index");
      await run.open({ clean: true });
      await run.becomeLeader(4);
      await run.append(1);
    },
  },
  {
    name: "index cut and grown again",
    config: { segmentBytes: 4096, indexIntervalBytes: 1 },
    async play(run) {
      await lead(run, 1, 2, 1, 1);
      await run.flush();
      await run.truncateTo(3);
      await run.append(3, 1);
      await run.roll();
      await run.append(1);
    },
  },
  {
    name: "follower leaves offsets out",
    config: EXACT,
    async play(run) {
      await run.open();
      await run.appendAsFollower(3);
      await run.appendAsFollowerAt(4, 3);
      await run.appendAsFollowerAt(9, 5);
      await run.appendAsFollower(5);
      await run.flush();
      await run.truncateTo(9);
      await run.appendAsFollowerAt(12, 6);
    },
  },
  {
    name: "emptied below the log start",
    async play(run) {
      await lead(run, 1);
      await run.truncateFullyAndStartAt(100);
      await run.becomeLeader(5);
      await run.append(1);
      await run.truncateTo(50);
      await run.becomeLeader(6);
      await run.append(2);
    },
  },
  {
    name: "flush and roll beside appends",
    flush: "none",
    config: EXACT,
    async play(run) {
      await lead(run, 1, 1, 1, 1);
      await run.flush();
      await run.append(1, 1, 1);
      await run.truncateTo(5);
      await run.append(1);
    },
  },
  {
    name: "appends that wait for a flush of several segments",
    flush: "none",
    config: { ...EXACT, flushBytes: batchOf(0, 1).length },
    async play(run) {
      await lead(run, 1, 1);
      await run.append(1, 1, 1, 1, 1, 1);
      await run.append(1);
      await run.flush();
    },
  },
  {
    name: "short writes",
    async play(run) {
      await run.open();
      await run.becomeLeader(FIRST_EPOCH);
      run.disk.limits.shortTransferOneIn = 2;
      await run.append(1, 2);
      await run.append(2);
      run.disk.limits.shortTransferOneIn = 0;
      await run.append(1);
    },
  },
  {
    name: "failed sync of two waiting appends",
    flush: "always",
    async play(run) {
      await lead(run, 1);
      run.inject({ operation: "sync", path: ".log", code: "EIO", pages: "new" });
      await run.failAppends(1, 1);
      run.killProcess();
      await run.open();
      await run.becomeLeader(4);
      await run.append(1);
    },
  },
  {
    name: "delete-records within and between segments",
    config: EXACT,
    async play(run) {
      await lead(run, 1, 1);
      await run.becomeLeader(4);
      await run.append(1);
      await run.deleteRecords(1);
      await run.deleteRecords(3);
      await run.append(1);
    },
  },
  {
    name: "cut that leaves nothing but deleted records",
    config: EXACT,
    async play(run) {
      await lead(run, 4);
      await run.deleteRecords(2);
      await run.truncateTo(3);
      await run.append(1);
    },
  },
  {
    name: "delete-records behind a cut inside the first batch",
    flush: "always",
    config: WIDE,
    async play(run) {
      await lead(run, 4);
      await run.truncateTo(3);
      await run.deleteRecords(2);
      await run.append(1);
      await run.append(1);
    },
  },
  {
    name: "retention by size",
    config: { ...EXACT, retentionBytes: batchOf(0, 1).length },
    async play(run) {
      await lead(run, 1, 1, 1);
      await run.retain(2);
      await run.append(1);
    },
  },
  {
    name: "time index full, grown and cut",
    config: { segmentBytes: 4096, indexIntervalBytes: 1, segmentIndexBytes: 48 },
    async play(run) {
      await lead(run, 1, 1, 2, 1, 1);
      await run.truncateTo(3);
      await run.append(1, 1, 1);
    },
  },
  {
    name: "write that went astray",
    async play(run) {
      await lead(run, 1, 2);
      run.killProcess();
      await run.strayWrite();
      await run.open();
      await run.becomeLeader(4);
      await run.append(1);
    },
  },
  {
    name: "transactions committed, aborted and left open",
    config: TIMELESS,
    async play(run) {
      await lead(run);
      await run.appendInTransaction(ANNA, 1);
      await run.append(1);
      await run.appendInTransaction(BERT, 2);
      await run.endTransaction(ANNA, "abort");
      await run.roll();
      await run.appendInTransaction(BERT, 1);
      await run.endTransaction(BERT, "commit");
      await run.appendInTransaction(ANNA, 1);
      run.killProcess();
      await run.open();
      await run.becomeLeader(4);
      await run.endTransaction(ANNA, "abort");
      await run.append(1);
      await run.close();
      await run.checkRemakeOf(".txnindex");
    },
  },
  {
    name: "markers cut off, and written otherwise",
    config: TIMELESS,
    async play(run) {
      await lead(run);
      await run.appendInTransaction(ANNA, 1);
      await run.appendInTransaction(BERT, 1);
      await run.endTransaction(ANNA, "abort");
      await run.roll();
      await run.endTransaction(BERT, "abort");
      await run.truncateTo(3);
      await run.becomeLeader(4);
      await run.endTransaction(BERT, "commit");
      await run.truncateTo(2);
      await run.becomeLeader(5);
      await run.endTransaction(ANNA, "commit");
    },
  },
  {
    name: "compaction, and another pass",
    config: KEYED,
    async play(run) {
      await lead(run);
      await run.appendKeyed("k0", "k1", "k0", "k1", "k2", "k0", "k3");
      await run.flush();
      await run.compact();
      await run.appendKeyed("k1", "k3", "k3");
      await run.flush();
      await run.compact();
      await run.appendKeyed("k1");
    },
  },
  {
    name: "compaction beside a stop and a kill",
    config: KEYED,
    async play(run) {
      await lead(run);
      await run.appendKeyed("k0", "k1", "k0", "k1", "k1", "k1");
      await run.roll();
      await run.compact();
      await run.close();
      await run.open({ clean: true });
      await run.becomeLeader(4);
      await run.appendKeyed("k1", "k2", "k1", "k4");
      await run.compact();
      run.killProcess();
      await run.open();
      await run.becomeLeader(5);
      await run.appendKeyed("k4");
    },
  },
  {
    name: "compaction behind deleted records, and a cut into it",
    config: KEYED,
    async play(run) {
      await lead(run);
      await run.appendKeyed("k0", "k1", "k0", "k1", "k2", "k0", "k3", "k2");
      await run.flush();
      await run.deleteRecords(4);
      await run.compact();
      await run.truncateTo(5);
      await run.becomeLeader(4);
      await run.appendKeyed("k0");
    },
  },
  {
    name: "rot and loss while nothing runs",
    config: EXACT,
    async play(run) {
      await lead(run, 1, 1, 1);
      await run.close();
      for (const offset of [0, 2]) await run.checkLossOf(`0000000000000000000${offset}.log`);
      await run.checkCutOf("00000000000000000000.log");
      await run.checkRotOf("00000000000000000002.log");
    },
  },
];
