import { createHash } from "node:crypto";
import { cp, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";

import { encodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import type { LogConfig, PartitionLog } from "@tidemark/log";
import { NODE_JOBS, SystemClock } from "@tidemark/runtime-node";
import { SimulatedEnvironment } from "@tidemark/simulator";
import {
  compressPayload,
  decodeRecords,
  decompressBatchNow,
  deleteHorizonMs,
  encodeBatch,
  recordsSection,
  withCompressedPayload,
} from "@tidemark/wire";
import type { BatchOptions } from "@tidemark/wire";

import { headerOf, TIMESTAMP_START } from "./batches.ts";
import type { Exchange } from "./exchange.ts";
import type { Oracle } from "./kafka.ts";
import { openLog } from "./open-log.ts";
import type { SeededRandom } from "./random.ts";

const NAME = "oracle-0";
const PRODUCER_ID = 70;
const PRODUCERS = 3;
const DELETE_RETENTION_MS = 1000;
/** A compressed batch is made anew by either side's own compressor: only what is in it can be compared. */
const OUTPUT_BYTES_MAX = 2 ** 20;

/** How often each step is drawn between two passes. */
const WEIGHTS = {
  plain: 30,
  idempotent: 15,
  transactional: 30,
  commit: 12,
  abort: 10,
  roll: 5,
  "new-epoch": 2,
} as const;

/**
 * One random history of a log that is compacted: written by ours, and each pass made by ours on the log and by Kafka's cleaner on a copy
 * of it. What both leave has to be the same.
 */
export class CompactionDuel {
  readonly #oracle: Oracle;
  readonly #random: SeededRandom;
  readonly #ourDirectory: string;
  readonly #theirDirectory: string;
  readonly #environment = new SimulatedEnvironment({ seed: 1 });
  readonly #clock = new SetClock();
  readonly #config: Partial<LogConfig>;
  readonly #isCompressed: boolean;
  readonly #sequences = new Map<number, number>();
  readonly #exchanges: Exchange[] = [];
  #leaderEpoch = 0;

  /** @param directory an empty one, for the files of both */
  constructor(oracle: Oracle, random: SeededRandom, directory: string) {
    this.#oracle = oracle;
    this.#random = random;
    this.#ourDirectory = join(directory, "ours", NAME);
    this.#theirDirectory = join(directory, "theirs", NAME);
    this.#isCompressed = random.oneIn(3);
    this.#config = {
      segmentBytes: random.between(700, 4000),
      indexIntervalBytes: random.between(50, 400),
      deleteRetentionMs: DELETE_RETENTION_MS,
      flush: "none",
    };
  }

  /** What both sides answered and left, pass by pass. */
  async play(passes: number): Promise<readonly Exchange[]> {
    let cleanedEnd: number | undefined;
    for (let pass = 0; pass < passes; pass += 1) {
      const log = await this.#open();
      await log.becomeLeader(toLeaderEpoch(this.#leaderEpoch));
      for (let steps = this.#random.between(10, 60); steps > 0; steps -= 1) await this.#step(log);
      const end = log.logEndOffset;
      await log.close();
      await rm(this.#theirDirectory, { recursive: true, force: true });
      await cp(this.#ourDirectory, this.#theirDirectory, { recursive: true });
      cleanedEnd = await this.#pass(cleanedEnd, end);
      // At times the horizons of the pass before are over by the next one.
      this.#clock.nowMs += this.#random.oneIn(2) ? DELETE_RETENTION_MS + 1 : 10;
    }
    return this.#exchanges;
  }

  async #pass(cleanedEnd: number | undefined, end: number): Promise<number> {
    const log = await this.#open();
    const options = { firstDirtyOffset: cleanedEnd === undefined ? undefined : toOffset(cleanedEnd) };
    const { firstDirtyOffset, firstUncleanableOffset } = await log.compactionRange(options);
    // No cleaner begins where nothing is dirty.
    const isDirty = firstUncleanableOffset > firstDirtyOffset;
    const cleanedEndOffset = isDirty ? (await log.compact(options)).cleanedEndOffset : firstDirtyOffset;
    await log.close();
    const { segmentBytes = 0, indexIntervalBytes = 0 } = this.#config;
    const config = `internal.segment.bytes=${segmentBytes} index.interval.bytes=${indexIntervalBytes} delete.retention.ms=${DELETE_RETENTION_MS}`;
    await this.#oracle.ask(`log open ${this.#theirDirectory} 0 ${end} clean cleanup.policy=compact ${config}`);
    const cleanable = `log cleanable ${cleanedEnd ?? "none"} ${this.#clock.nowMs}`;
    const range = `${firstDirtyOffset} ${firstUncleanableOffset}`;
    this.#exchanges.push({ command: cleanable, ours: range, theirs: await this.#oracle.ask(cleanable) });
    if (isDirty) {
      const clean = `log clean ${firstDirtyOffset} ${firstUncleanableOffset} ${this.#clock.nowMs}`;
      this.#exchanges.push({ command: clean, ours: String(cleanedEndOffset), theirs: await this.#oracle.ask(clean) });
    }
    await this.#oracle.ask("log close");
    this.#exchanges.push({
      command: "files",
      ours: await this.#show(this.#ourDirectory),
      theirs: await this.#show(this.#theirDirectory),
    });
    return cleanedEndOffset;
  }

  async #step(log: PartitionLog): Promise<void> {
    const random = this.#random;
    const producerId = PRODUCER_ID + random.between(0, PRODUCERS - 1);
    const producer = { producerId, producerEpoch: 0 };
    const step = random.pick(WEIGHTS);
    const isOpen = log.producers.get(producerId)?.transactionFirstOffset !== undefined;
    switch (step) {
      case "roll":
        await log.roll();
        return;
      case "new-epoch":
        this.#leaderEpoch += 1;
        return log.becomeLeader(toLeaderEpoch(this.#leaderEpoch));
      case "commit":
      case "abort":
        // One without a transaction is written too: it ends nothing.
        if (!isOpen && !random.oneIn(6)) return;
        await log.endTransaction({ ...producer, type: step, coordinatorEpoch: 0, transactionVersion: 0 });
        return;
      case "plain":
        await log.append(this.#batch({}), { origin: "local" });
        return;
      case "idempotent":
      case "transactional": {
        // What a producer sends while its transaction is open is of it.
        const baseSequence = this.#sequences.get(producerId) ?? 0;
        const bytes = this.#batch({ ...producer, baseSequence, transactional: isOpen || step === "transactional" });
        this.#sequences.set(producerId, baseSequence + headerOf(bytes).recordsCount);
        await log.append(bytes, { origin: "client", isTransactionVerified: true });
        return;
      }
      default:
        throw new Error(`unknown step ${String(step satisfies never)}`);
    }
  }

  #batch(options: BatchOptions): Uint8Array {
    const random = this.#random;
    const records = Array.from({ length: random.between(1, 4) }, () => ({
      key: encodeUtf8(`key-${random.between(0, 14)}`),
      value: random.oneIn(4) ? null : random.bytes(random.between(0, 60)),
      headers: random.oneIn(6) ? [{ key: "h", value: random.bytes(2) }] : [],
      timestamp: TIMESTAMP_START + random.between(0, 1000),
    }));
    const bytes = encodeBatch(records, options);
    if (!this.#isCompressed || random.oneIn(2)) return bytes;
    const codec = random.pick({ gzip: 1, snappy: 1, lz4: 1, zstd: 1 });
    return withCompressedPayload(
      bytes,
      codec,
      compressPayload(NODE_CODECS, codec, recordsSection(bytes, headerOf(bytes))),
    );
  }

  #open(): Promise<PartitionLog> {
    return openLog(this.#ourDirectory, { config: this.#config, clock: this.#clock, environment: this.#environment });
  }

  /** Every batch that is left, and the hashes of the files where their bytes have to be the same. */
  async #show(directory: string): Promise<string> {
    const names = (await readdir(directory)).filter((name) => /^\d{20}\.(?:log|index|timeindex|txnindex)$/u.test(name));
    const lines: string[] = [];
    for (const name of names.sort()) {
      const bytes = new Uint8Array(await readFile(join(directory, name)));
      if (name.endsWith(".log")) lines.push(name, ...showBatches(bytes));
      // Kafka makes these at their first use.
      if (bytes.length === 0 || (this.#isCompressed && !name.endsWith(".txnindex"))) continue;
      lines.push(`${name} ${bytes.length} ${createHash("sha256").update(bytes).digest("hex").slice(0, 12)}`);
    }
    return lines.join("\n");
  }
}

function showBatches(bytes: Uint8Array): string[] {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length;) {
    const header = headerOf(bytes, at);
    const { baseOffset, lastOffset, partitionLeaderEpoch, attributes, baseTimestamp, maxTimestamp } = header;
    const { producerId, producerEpoch, baseSequence, recordsCount } = header;
    const marks = [
      deleteHorizonMs(header) === undefined ? "" : " delete-horizon",
      recordsCount === 0 ? " emptied" : "",
    ];
    const records = [...decodeRecords(header, decompressBatchNow(NODE_JOBS, bytes, header, OUTPUT_BYTES_MAX))];
    const shown = records.map(({ offset, timestamp, key, value, headers }) =>
      [offset, timestamp, hex(key), hex(value), headers.length].join(":"),
    );
    const numbers = [baseOffset, lastOffset, partitionLeaderEpoch, attributes, baseTimestamp, maxTimestamp];
    const producer = [producerId, producerEpoch, baseSequence, recordsCount];
    lines.push(`  ${[...numbers, ...producer].join(" ")}${marks.join("")} ${shown.join(" ")}`);
    at += header.sizeInBytes;
  }
  return lines;
}

function hex(bytes: Uint8Array | null): string {
  return bytes === null ? "-" : Buffer.from(bytes).toString("hex");
}

/** Stands where it is set, an hour after the records at first. */
class SetClock extends SystemClock {
  nowMs = TIMESTAMP_START + 3_600_000;

  override wallMs(): number {
    return this.nowMs;
  }
}
