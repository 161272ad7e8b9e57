import { decodeUtf8, encodeUtf8, toLeaderEpoch, toOffset } from "@tidemark/base";
import type { FileSystem } from "@tidemark/base";
import { SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import { checkCrc, decodeRecords, encodeBatch, recordsSection, scanBatch, stampBatch } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import type { LogConfig } from "./config.ts";
import { DEFAULT_LOG_CONFIG } from "./config.ts";
import { LogDirectory } from "./log-directory.ts";
import { PartitionLog } from "./partition-log.ts";

export const DIRECTORY = "data/orders-0";

/** When records were made, unless said otherwise. */
export const NOON = 1_700_000_000_000;

/** Batches of tests are older than the simulated clock: their producers live on unless a test says otherwise. */
const FOR_EVER_MS = Number.MAX_SAFE_INTEGER;

/** A partition log on a simulated machine that can be stopped in every way. */
export class LogFixture {
  environment: SimulatedEnvironment;
  logDirectory = new LogDirectory("data");
  readonly config: LogConfig;

  constructor(config: Partial<LogConfig> = {}, environment = new SimulatedEnvironment({ seed: 1 })) {
    this.config = { ...DEFAULT_LOG_CONFIG, ...config };
    this.environment = environment;
  }

  get disk(): SimulatedDisk {
    return this.environment.files;
  }

  /** Opens as the leader of the next epoch, or as no leader. */
  async open(
    options: {
      clean?: boolean;
      epoch?: number | "none";
      config?: Partial<LogConfig>;
      areGapsRecorded?: boolean;
      producerIdExpirationMs?: number;
      /** Instead of the environment's own. */
      files?: FileSystem;
    } = {},
  ): Promise<PartitionLog> {
    const { state, clock, random, workers } = this.environment;
    const files = options.files ?? this.environment.files;
    await files.makeDirectory(DIRECTORY);
    await files.syncDirectory(".");
    await files.syncDirectory("data");
    const log = await PartitionLog.open({
      files,
      state,
      clock,
      random,
      workers,
      directory: DIRECTORY,
      topic: "orders",
      partition: 0,
      config: { ...this.config, ...options.config },
      wasCleanShutdown: options.clean ?? false,
      areGapsRecorded: options.areGapsRecorded ?? true,
      producerIdExpirationMs: options.producerIdExpirationMs ?? FOR_EVER_MS,
      logDirectory: this.logDirectory,
    });
    if (options.epoch !== "none")
      await log.becomeLeader(toLeaderEpoch(options.epoch ?? (log.epochEntries.at(-1)?.epoch ?? -1) + 1));
    return log;
  }

  /** The process dies; what it wrote stays readable. */
  kill(): void {
    this.environment = this.environment.crashProcess();
    this.logDirectory = new LogDirectory("data");
  }

  /** The machine dies, and everything that was not synced is gone. */
  powerCut(): void {
    const [lost] = this.disk.enumerateCrashImages("ordered-prefix", { outcomesMax: 4096 });
    if (lost === undefined) throw new Error("a crash leaves an image");
    this.environment.crashProcess();
    this.environment = new SimulatedEnvironment({ seed: 1 }, SimulatedDisk.fromImage(lost));
    this.logDirectory = new LogDirectory("data");
  }

  async readFile(name: string): Promise<Uint8Array> {
    const file = await this.disk.open(`${DIRECTORY}/${name}`, "read");
    const bytes = new Uint8Array(await file.size());
    await file.readAt(bytes, 0);
    await file.close();
    return bytes;
  }

  async writeFile(name: string, bytes: Uint8Array, positionBytes?: number): Promise<void> {
    const file = await this.disk.open(`${DIRECTORY}/${name}`, positionBytes === undefined ? "truncate" : "create");
    await file.writeAt(bytes, positionBytes ?? 0);
    await file.sync();
    await file.close();
    await this.disk.syncDirectory(DIRECTORY);
  }

  async fileNames(): Promise<string[]> {
    return [...(await this.disk.list(DIRECTORY))].sort();
  }
}

/** A batch as a producer sends it: values as text. */
export function batchOf(
  values: readonly string[],
  producer: { id?: number; epoch?: number; sequence?: number; transactional?: boolean; timestamp?: number } = {},
  timestampOf: (value: string) => number = () => producer.timestamp ?? NOON,
): Uint8Array {
  return encodeBatch(
    values.map((value) => ({ key: null, value: encodeUtf8(value), timestamp: timestampOf(value) })),
    producer.id === undefined
      ? {}
      : {
          producerId: producer.id,
          producerEpoch: producer.epoch ?? 0,
          baseSequence: producer.sequence ?? 0,
          transactional: producer.transactional ?? false,
        },
  );
}

/** A batch as a leader stored it. */
export function storedBatch(
  values: readonly string[],
  baseOffset: number,
  epoch: number,
  timestampOf?: (value: string) => number,
  producer: Parameters<typeof batchOf>[1] = {},
): Uint8Array {
  const batch = batchOf(values, producer, timestampOf);
  stampBatch(batch, 0, baseOffset, epoch);
  return batch;
}

export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** The whole batches in `bytes`, CRC checked. */
export function batchesIn(bytes: Uint8Array): BatchHeader[] {
  const headers: BatchHeader[] = [];
  for (let at = 0; at < bytes.length;) {
    const scan = scanBatch(bytes, at);
    if (scan.type === "incomplete") break;
    if (scan.type === "corrupt" || !checkCrc(bytes, scan.header)) throw new Error(`no batch at ${at}`);
    headers.push(scan.header);
    at += scan.header.sizeInBytes;
  }
  return headers;
}

/** `offset:value` of every record from `fromOffset` to the end. */
export async function recordsOf(log: PartitionLog, fromOffset: number = log.logStartOffset): Promise<string[]> {
  const records: string[] = [];
  for (let next = fromOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 << 20 });
    const headers = batchesIn(bytes);
    for (const header of headers) {
      for (const record of decodeRecords(header, recordsSection(bytes, header))) {
        if (record.offset >= fromOffset)
          records.push(`${record.offset}:${record.value === null ? "" : decodeUtf8(record.value)}`);
      }
      next = header.lastOffset + 1;
    }
    if (headers.length === 0) break;
  }
  return records;
}
