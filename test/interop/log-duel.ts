import { createHash } from "node:crypto";
import { cp, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

import { toLeaderEpoch, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { DEFAULT_LOG_CONFIG, LogError } from "@tidemark/log";
import type { AppendResult, BatchOrigin, LogConfig, PartitionLog } from "@tidemark/log";
import { SimulatedEnvironment } from "@tidemark/simulator";

import { headerOf, joinBytes, randomBatch, TIMESTAMP_START, toBase64 } from "./batches.ts";
import type { PendingExchange } from "./exchange.ts";
import { OracleError } from "./kafka.ts";
import type { Oracle } from "./kafka.ts";
import { openLog } from "./open-log.ts";
import type { SeededRandom } from "./random.ts";

const SEGMENT_BYTES = 2048;
const INDEX_INTERVAL_BYTES = 200;
const RETENTION_BYTES = 5000;
const NAME = "oracle-0";
/** Three records with a value of 60 bytes, a key, a header. */
const PRODUCERS_BATCH_BYTES_MAX = 61 + 3 * 120;
const PRODUCERS = 3;
const SHOWN_BYTES_MAX = 128;

/** Which of our codes an exception of Kafka's stands for. One that is not here is not expected: it is shown as it came. */
const CODES: Readonly<Record<string, string>> = {
  CorruptRecordException: "CORRUPT_MESSAGE",
  InvalidProducerEpochException: "INVALID_PRODUCER_EPOCH",
  InvalidRecordException: "INVALID_RECORD",
  OffsetOutOfRangeException: "OFFSET_OUT_OF_RANGE",
  OffsetsOutOfOrderException: "OFFSETS_OUT_OF_ORDER",
  OutOfOrderSequenceException: "OUT_OF_ORDER_SEQUENCE_NUMBER",
  RecordBatchTooLargeException: "RECORD_LIST_TOO_LARGE",
  UnexpectedAppendOffsetException: "UNEXPECTED_APPEND_OFFSET",
};

/** How often each operation is drawn. */
const WEIGHTS = {
  /** As leader or as follower, whichever it is. */
  append: 70,
  read: 30,
  "list-offset": 15,
  "end-of-epoch": 10,
  "new-epoch": 5,
  roll: 4,
  retain: 3,
  "delete-records": 2,
  truncate: 6,
  "truncate-fully": 1,
  reopen: 3,
} as const;

type OperationName = keyof typeof WEIGHTS;

interface LastBatch {
  readonly bytes: Uint8Array;
  readonly nextSequence: number;
  readonly producerEpoch: number;
}

/**
 * One random history, played on our PartitionLog at once and sent to Kafka's UnifiedLog in the same order. What is drawn
 * depends on our log alone, so that the answers of the two can be compared afterwards.
 */
export class LogDuel {
  readonly #oracle: Oracle;
  readonly #random: SeededRandom;
  readonly #ourDirectory: string;
  readonly #theirDirectory: string;
  readonly #environment: SimulatedEnvironment;
  readonly #config: LogConfig;
  /** Of the rounds of this history that a file comparison ends. */
  readonly #pending: PendingExchange[] = [];
  readonly #lastBatches = new Map<number, LastBatch>();
  #log: PartitionLog | undefined;
  #firstProducerId = 1;
  #leaderEpoch = -1;
  #isLeader = false;

  /** @param directory an empty one, for the files of both */
  constructor(oracle: Oracle, random: SeededRandom, directory: string) {
    this.#oracle = oracle;
    this.#random = random;
    this.#ourDirectory = join(directory, "ours", NAME);
    this.#theirDirectory = join(directory, "theirs", NAME);
    this.#environment = new SimulatedEnvironment({ seed: 1 });
    this.#config = {
      ...DEFAULT_LOG_CONFIG,
      segmentBytes: SEGMENT_BYTES,
      indexIntervalBytes: INDEX_INTERVAL_BYTES,
      maxMessageBytes: 2 ** 20,
      retentionBytes: RETENTION_BYTES,
      flush: random.oneIn(2) ? "always" : "none",
    };
  }

  /** Plays the history; the exchanges that the caller settles and compares. */
  async play(operationCount: number): Promise<readonly PendingExchange[]> {
    await this.#open(toOffset(0), toOffset(0));
    for (let i = 0; i < operationCount; i++) {
      await this.#step(this.#random.pick(WEIGHTS));
      this.#compareState();
    }
    await this.#close();
    await this.#tradeDirectories();
    return this.#pending;
  }

  async #step(operation: OperationName): Promise<void> {
    switch (operation) {
      case "append":
        return this.#isLeader ? this.#append() : this.#follow();
      case "new-epoch":
        return this.#newEpoch();
      case "read":
        return this.#read();
      case "list-offset":
        return this.#listOffset();
      case "end-of-epoch": {
        const epoch = this.#random.between(-2, this.#leaderEpoch + 2);
        const { epoch: answered, endOffset } = this.#current.endOffsetForEpoch(epoch);
        return this.#exchange(`end-of-epoch ${epoch}`, async () =>
          endOffset < 0 ? "none" : `${answered} ${endOffset}`,
        );
      }
      case "retain":
        return this.#retain();
      case "delete-records": {
        const offset = this.#random.between(0, this.#current.logEndOffset + 1);
        const endOfBatches = await this.#endOfBatchesBelow(this.#current.logEndOffset);
        const isBehindAll = Math.max(endOfBatches, this.#current.segments.at(-1)?.baseOffset ?? 0) < offset;
        await this.#exchange(`delete-records ${offset}`, async () => {
          await this.#current.deleteRecords(toOffset(offset));
          return nothing(this.#current.deleteOldSegments());
        });
        if (isBehindAll) return this.#reopenAtStart();
        return this.#replaceProducers();
      }
      case "roll":
        return this.#roll();
      case "truncate":
        return this.#truncate();
      case "truncate-fully": {
        const offset = this.#random.between(0, this.#current.logEndOffset + 20);
        await this.#exchange(`truncate-fully ${offset}`, () =>
          nothing(this.#current.truncateFullyAndStartAt(toOffset(offset))),
        );
        return this.#replaceProducers();
      }
      case "reopen":
        return this.#reopen();
      default:
        throw new Error(`unknown operation ${String(operation satisfies never)}`);
    }
  }

  // ---- appends

  async #newEpoch(): Promise<void> {
    this.#leaderEpoch += this.#random.between(1, 2);
    this.#isLeader = this.#random.oneIn(2);
    const epoch = toLeaderEpoch(this.#leaderEpoch);
    if (this.#isLeader) await this.#exchange(`lead ${epoch}`, () => nothing(this.#current.becomeLeader(epoch)));
    else await this.#current.becomeFollower(); // A follower's log learns of an epoch from its first batch.
  }

  async #append(): Promise<void> {
    const random = this.#random;
    let batch: Uint8Array;
    if (random.oneIn(4) && this.#mayBeRefusedLate(PRODUCERS_BATCH_BYTES_MAX)) batch = this.#producersBatch();
    else batch = this.#plainBatch(random.oneIn(40) && this.#mayBeRefusedLate(0) ? 3000 : 120);
    if (random.oneIn(25) && batch.length <= SEGMENT_BYTES) batch = corrupted(batch, random); // One fault at a time.
    const origin: BatchOrigin = random.oneIn(2) ? "client" : "local";
    await this.#exchange(`append ${this.#leaderEpoch} ${toBase64(batch)}`, async () => {
      const result = await this.#current.append(batch, { origin });
      const { producerId, producerEpoch, baseSequence, recordsCount } = headerOf(batch);
      if (producerId >= 0) {
        this.#lastBatches.set(producerId, { bytes: batch, nextSequence: baseSequence + recordsCount, producerEpoch });
      }
      return showAppend(result);
    });
  }

  /**
   * Kafka enters the leader epoch and begins the next segment before it looks at an append's size and producer, and both
   * stay when it then refuses. Ours looks first. Not worth agreeing on: what may be refused there is drawn only where
   * neither is due.
   */
  #mayBeRefusedLate(appendBytes: number): boolean {
    const { segments, epochEntries } = this.#current;
    const epoch = epochEntries.at(-1)?.epoch;
    const isEpochEntered = this.#isLeader ? epoch === this.#leaderEpoch : epoch !== undefined;
    return isEpochEntered && (segments.at(-1)?.sizeBytes ?? 0) + appendBytes <= SEGMENT_BYTES;
  }

  #plainBatch(valueBytesMax: number): Uint8Array {
    const compressed = this.#random.oneIn(6);
    return randomBatch(this.#random, { recordsMax: 4, valueBytesMax, compressed });
  }

  /** An idempotent producer's next batch; now and then its last one again, one with a hole before it, or of another epoch. */
  #producersBatch(): Uint8Array {
    const random = this.#random;
    const producerId = this.#firstProducerId + random.between(0, PRODUCERS - 1);
    const last = this.#lastBatches.get(producerId);
    if (last !== undefined && random.oneIn(6)) return last.bytes;
    const epochChange = last === undefined || !random.oneIn(4) ? 0 : random.between(-1, 2);
    const producerEpoch = Math.max(0, (last?.producerEpoch ?? 1) + epochChange);
    const isNewEpoch = producerEpoch !== (last?.producerEpoch ?? 1);
    const hole = random.oneIn(10) ? 1 : 0;
    const baseSequence = (isNewEpoch ? 0 : (last?.nextSequence ?? 0)) + hole;
    // Kafka forgets at a reopen a producer whose last batch has no timestamp.
    const shape = { recordsMax: 3, valueBytesMax: 60, compressed: false, alwaysTimed: true };
    return randomBatch(random, shape, { producerId, producerEpoch, baseSequence });
  }

  /**
   * A truncation may have taken a producer's last batches, and a second one of the same sequence would be drawn. Whether
   * that is a duplicate of one long ago depends on how many batches are remembered, which Kafka's snapshots limit to one.
   */
  #replaceProducers(): void {
    this.#lastBatches.clear();
    this.#firstProducerId += PRODUCERS;
  }

  /** What a leader may answer a fetch with: several batches, holes between them, epochs that rise, the end cut off. */
  async #follow(): Promise<void> {
    const random = this.#random;
    const batches: Uint8Array[] = [];
    // One fault at a time: which of two is reported is nobody's promise.
    const isCorrupt = random.oneIn(30);
    let baseOffset: number = this.#current.logEndOffset + (random.oneIn(8) && !isCorrupt ? random.between(-3, 3) : 0);
    let epoch = this.#current.epochEntries.at(-1)?.epoch ?? 0;
    const isTooLarge = random.oneIn(40) && this.#mayBeRefusedLate(0);
    for (let count = random.between(1, 4); count > 0 && baseOffset >= 0; count--) {
      if (random.oneIn(5) && !isTooLarge) epoch = toLeaderEpoch(epoch + random.between(1, 2));
      const shape = { recordsMax: 3, valueBytesMax: isTooLarge ? 3000 : 80, compressed: random.oneIn(8) };
      const batch = randomBatch(random, shape, { baseOffset, partitionLeaderEpoch: epoch });
      batches.push(isCorrupt && random.oneIn(2) ? corrupted(batch, random) : batch);
      baseOffset += headerOf(batch).recordsCount + (random.oneIn(8) ? random.between(1, 5) : 0);
    }
    if (batches.length === 0) return;
    let bytes = joinBytes(batches);
    if (random.oneIn(6)) bytes = bytes.slice(0, bytes.length - random.between(1, Math.min(100, bytes.length - 1)));
    const leaderEpoch = toLeaderEpoch(Math.max(0, this.#leaderEpoch));
    await this.#exchange(`follow ${leaderEpoch} ${toBase64(bytes)}`, async () =>
      showAppend(await this.#current.appendAsFollower(bytes, { leaderEpoch })),
    );
    // The epoch of a batch is at most its leader's: what comes later must not lie below it.
    this.#leaderEpoch = Math.max(this.#leaderEpoch, this.#current.epochEntries.at(-1)?.epoch ?? -1);
  }

  // ---- rolls and truncations

  async #roll(): Promise<void> {
    const log = this.#current;
    const active = log.segments.at(-1);
    // An empty segment below the log end is what a cut inside its first batch leaves. Kafka puts another behind it; ours
    // begins no segment while the active one is empty.
    if (active?.sizeBytes === 0 && active.baseOffset < log.logEndOffset) return;
    await this.#exchange("roll", async () => String(await log.roll()));
  }

  async #retain(): Promise<void> {
    await this.#exchange("retain", () => nothing(this.#current.deleteOldSegments()));
    this.#replaceProducers();
  }

  async #truncate(): Promise<void> {
    const log = this.#current;
    const drawn = this.#random.between(Math.max(0, log.logStartOffset - 3), log.logEndOffset + 2);
    const endOfKept = await this.#endOfBatchesBelow(drawn);
    const lastKept = log.segments.findLast(({ baseOffset }) => baseOffset <= drawn);
    const isAllDeleted = endOfKept <= log.logStartOffset && (lastKept?.baseOffset ?? 0) < log.logStartOffset;
    if (isAllDeleted && drawn < log.logEndOffset) {
      await this.#exchange(`truncate ${drawn}`, () => nothing(log.truncateTo(toOffset(drawn))));
      return this.#reopenAtStart();
    }
    // A cut inside a batch takes the batch, and may leave below the new log end the entry of an epoch that has no batch
    // any more. Kafka keeps it over a clean stop. Ours takes an epoch file that does not end with the last batch's epoch
    // for a thin one and rebuilds it. So the cut is made where that epoch begins, and takes the entry too.
    const latestKept = log.epochEntries.findLast(({ startOffset }) => startOffset < drawn);
    const isEmptied = latestKept !== undefined && latestKept.startOffset >= endOfKept;
    const offset = isEmptied && drawn < log.logEndOffset ? latestKept.startOffset : drawn;
    await this.#exchange(`truncate ${offset}`, () => nothing(log.truncateTo(toOffset(offset))));
    this.#replaceProducers();
  }

  /**
   * No batch reaches the log start, which lies below the log end. Ours begins a segment there at once; Kafka keeps the bytes of deleted records,
   * and begins anew at the next open.
   */
  async #reopenAtStart(): Promise<void> {
    this.#replaceProducers();
    await this.#reopen({ comparesFiles: false });
  }

  /** Next offset after the last batch that ends at or below `offset`; the log start when none does. */
  async #endOfBatchesBelow(offset: number): Promise<number> {
    const log = this.#current;
    let end: number = log.logStartOffset;
    for (let fromOffset = log.logStartOffset; fromOffset < Math.min(offset, log.logEndOffset);) {
      const { bytes } = await log.read({ fromOffset, maxBytes: 0 });
      if (bytes.length === 0) break;
      const { lastOffset } = headerOf(bytes);
      if (lastOffset < offset) end = lastOffset + 1;
      fromOffset = toOffset(lastOffset + 1);
    }
    return end;
  }

  // ---- reads and reopens

  async #read(): Promise<void> {
    const log = this.#current;
    const fromOffset = this.#random.between(Math.max(0, log.logStartOffset - 1), log.logEndOffset + 1);
    const maxBytes = this.#random.oneIn(4) ? this.#random.between(0, 80) : this.#random.between(0, 3000);
    await this.#exchange(`read ${fromOffset} ${maxBytes}`, async () => {
      const { bytes } = await log.read({ fromOffset: toOffset(fromOffset), maxBytes });
      return toBase64(bytes);
    });
  }

  async #listOffset(): Promise<void> {
    const timestamp = TIMESTAMP_START + this.#random.between(-10, 100_010);
    const names = ["latest", "earliest", "max-timestamp", "earliest-local"] as const;
    const at = this.#random.between(0, 2 * names.length - 1);
    const spec = names[at] ?? { timestamp };
    await this.#exchange(`list-offset ${names[at] === undefined ? timestamp : -1 - at}`, async () => {
      const found = await this.#current.listOffset(spec);
      return found === undefined ? "none" : `${found.offset} ${found.timestamp} ${found.leaderEpoch ?? -1}`;
    });
  }

  async #reopen(options: { readonly comparesFiles?: boolean } = {}): Promise<void> {
    const { logStartOffset } = this.#current;
    const logEndOffset = await this.#close(options);
    await this.#open(logStartOffset, logEndOffset);
    if (!this.#isLeader) return;
    // A leader's epoch is entered anew when it leads again, as after the restart of a broker.
    const epoch = toLeaderEpoch(this.#leaderEpoch);
    await this.#exchange(`lead ${epoch}`, () => nothing(this.#current.becomeLeader(epoch)));
  }

  async #open(logStartOffset: Offset, recoveryPoint: Offset): Promise<void> {
    await this.#exchange(this.#openCommand(this.#theirDirectory, logStartOffset, recoveryPoint, true), async () => {
      this.#log = await this.#openOurs(this.#ourDirectory, this.#environment, true);
      return "";
    });
    this.#compareState();
  }

  #openCommand(directory: string, logStartOffset: Offset, recoveryPoint: Offset, isClean: boolean): string {
    const config = [
      `internal.segment.bytes=${SEGMENT_BYTES}`,
      `index.interval.bytes=${INDEX_INTERVAL_BYTES}`,
      `max.message.bytes=${this.#config.maxMessageBytes}`,
      `retention.bytes=${RETENTION_BYTES}`,
    ];
    const stop = isClean ? "clean" : "unclean";
    return `open ${directory} ${logStartOffset} ${recoveryPoint} ${stop} ${config.join(" ")}`;
  }

  #openOurs(directory: string, environment: SimulatedEnvironment, isClean: boolean): Promise<PartitionLog> {
    return openLog(directory, { config: this.#config, wasCleanShutdown: isClean, environment });
  }

  /** Closes both and compares what they left on disk. @returns the log end offset */
  async #close({ comparesFiles = true }: { readonly comparesFiles?: boolean } = {}): Promise<Offset> {
    const log = this.#current;
    // A segment whose records were all deleted while it was active: ours goes with the next open, Kafka's when retention comes by.
    if ((log.segments[1]?.baseOffset ?? Number.POSITIVE_INFINITY) <= log.logStartOffset) await this.#retain();
    await this.#exchange("close", () => nothing(log.close()));
    await this.#pending.at(-1)?.theirs;
    if (!comparesFiles) return log.logEndOffset;
    const command = `files after ${this.#pending.length} exchanges`;
    const [ours, theirs] = [await showFiles(this.#ourDirectory), await showFiles(this.#theirDirectory)];
    this.#pending.push({ command, ours, theirs: Promise.resolve(theirs) });
    return log.logEndOffset;
  }

  /**
   * Each opens a copy of the other's directory, as after a crash: nothing is known but the files and the log start. Kafka
   * keeps what the epoch file says beside what it scans; ours believes the batches. So epochs that wrote nothing are not
   * compared, nor where in a gap between two batches an epoch begins.
   */
  async #tradeDirectories(): Promise<void> {
    const log = this.#current;
    // Ours forgets the epochs of deleted records, Kafka may take them from their batches.
    if (log.logStartOffset > (log.segments[0]?.baseOffset ?? 0)) return;
    const [ourCopy, theirCopy] = [
      join(this.#ourDirectory, "..", "traded", NAME),
      join(this.#theirDirectory, "..", "traded", NAME),
    ];
    await cp(this.#theirDirectory, ourCopy, { recursive: true });
    await cp(this.#ourDirectory, theirCopy, { recursive: true });
    const traded = new SimulatedEnvironment({ seed: 1 });
    const startKey = "log-start/oracle-0";
    const start = this.#environment.state.get(startKey);
    if (start !== undefined) await traded.state.commit([{ key: startKey, value: start }], { sync: true });
    await this.#exchange(this.#openCommand(theirCopy, log.logStartOffset, toOffset(0), false), async () => {
      this.#log = await this.#openOurs(ourCopy, traded, false);
      return "";
    });
    this.#compareState(await epochsOfBatches(ourCopy));
    await this.#exchange("close", () => nothing(this.#current.close()));
  }

  // ---- exchanges

  get #current(): PartitionLog {
    if (this.#log === undefined) throw new Error("the log is open");
    return this.#log;
  }

  async #exchange(command: string, play: () => Promise<string>): Promise<void> {
    const theirs = this.#oracle.ask(`log ${command}`).then(normalize, (error: unknown) => {
      if (!(error instanceof OracleError)) throw error;
      return `refused ${CODES[error.exception] ?? error.message}`;
    });
    theirs.catch(() => undefined); // Awaited when the history is over; until then a lost oracle is nobody's failure.
    let ours: string;
    try {
      ours = await play();
    } catch (error) {
      if (!(error instanceof LogError)) throw error;
      ours = `refused ${error.type.code}`;
    }
    this.#pending.push({ command, ours, theirs });
  }

  /** @param comparedEpochs these are compared without their start offsets, and no others; default: all entries are */
  #compareState(comparedEpochs?: ReadonlySet<number>): void {
    const log = this.#current;
    const segments = log.segments.map(({ baseOffset, sizeBytes }) => `${baseOffset}:${sizeBytes}`).join(",");
    const entries = log.epochEntries.map(({ epoch, startOffset }) => `${epoch}@${startOffset}`).join(" ");
    const ours = `start=${log.logStartOffset} end=${log.logEndOffset} segments=${segments} entries=${entries}`;
    const theirs = this.#oracle.ask("log state");
    const compared = (state: string): string => onlyEpochs(state, comparedEpochs);
    this.#pending.push({ command: "state", ours: compared(ours), theirs: theirs.then(compared) });
  }
}

function showAppend(result: AppendResult | undefined): string {
  return result === undefined ? "none" : `${result.baseOffset} ${result.lastOffset}`;
}

/** A follower's append of nothing is -1 and some last offset in Kafka. */
function normalize(answer: string): string {
  return answer.startsWith("-1 ") ? "none" : answer;
}

async function nothing(done: Promise<unknown>): Promise<string> {
  await done;
  return "";
}

function corrupted(batch: Uint8Array, random: SeededRandom): Uint8Array {
  const copy = batch.slice();
  const at = random.between(21, copy.length - 1); // Behind the CRC field, so that it must notice.
  copy[at] = (copy[at] ?? 0) ^ (1 << random.between(0, 7));
  return copy;
}

/** The `.log`, `.index` and `.timeindex` files of a closed log, one line each. Kafka makes an index at its first use: absent is empty. */
async function showFiles(directory: string): Promise<string> {
  const names = (await readdir(directory)).filter((name) => /^\d{20}\.log$/.test(name)).sort();
  const lines = await Promise.all(
    names.map(async (name) => {
      const log = await readFile(join(directory, name));
      const [index, times] = await Promise.all(
        ["index", "timeindex"].map((suffix) =>
          readFile(join(directory, name.replace(/log$/, suffix))).catch(() => Buffer.alloc(0)),
        ),
      );
      return `${name} ${show(log)}, index ${show(index)}, time index ${show(times)}`;
    }),
  );
  return lines.join("\n");
}

/** Short files whole, long ones as size and hash. */
function show(bytes: Buffer = Buffer.alloc(0)): string {
  if (bytes.length <= SHOWN_BYTES_MAX) return `[${bytes.toString("hex")}]`;
  return `${bytes.length} bytes ${createHash("sha256").update(bytes).digest("hex")}`;
}

/** Leader epochs that the batches of a log directory carry. */
async function epochsOfBatches(directory: string): Promise<Set<number>> {
  const epochs = new Set<number>();
  for (const name of (await readdir(directory)).filter((name) => name.endsWith(".log"))) {
    const bytes = new Uint8Array(await readFile(join(directory, name)));
    for (let at = 0; at < bytes.length;) {
      const { partitionLeaderEpoch, sizeInBytes } = headerOf(bytes, at);
      epochs.add(partitionLeaderEpoch);
      at += sizeInBytes;
    }
  }
  return epochs;
}

function onlyEpochs(state: string, epochs: ReadonlySet<number> | undefined): string {
  if (epochs === undefined) return state;
  const [before = "", entries = ""] = state.split("entries=");
  const kept = entries.split(" ").flatMap((entry) => {
    const epoch = Number.parseInt(entry, 10);
    return epochs.has(epoch) ? epoch : [];
  });
  return `${before}entries=${kept.join(" ")}`;
}
