import type { Environment, State } from "@tidemark/base";
import { COMPRESSION_TYPES, DEFAULT_LOG_CONFIG, QUEUED_BYTES_MAX, SEGMENT_BYTES_MAX } from "@tidemark/log";
import type { CleanupPolicy, CompressionType, FlushMode, TimestampType, TopicConfig } from "@tidemark/log";
import type { CompressionCodec } from "@tidemark/wire";
import { COMPRESSION_CODECS, compressionLevels, RECORD_BATCH_OVERHEAD } from "@tidemark/wire";
import { TidemarkError } from "./error.ts";

/** A batch takes records of several appends up to this size. */
export const BATCH_BYTES_DEFAULT = 128 * 1024;

/** Records that are not acknowledged yet, in bytes; past it appends wait. Kafka: buffer.memory. */
export const BUFFER_MEMORY_BYTES_DEFAULT = 32 * 1024 ** 2;

/** What a node runs on, in place of the operating system: for tests and simulation. */
export interface TidemarkParts {
  readonly environment: Environment;
  /** Opens the node's own state. Called once the directory is locked; closed with the log. */
  readonly openState: (directory: string) => Promise<State>;
}

export interface TidemarkOptions {
  /** Made if absent. `DIRECTORY/log` is a Kafka log directory, `DIRECTORY/state` the node's own state. */
  readonly directory: string;
  /** For topics that are made. `always`: an append is on the disk when it resolves. `none`: when the system gets to it. Default `always`. */
  readonly flush?: FlushMode;
  /** `none`: no lock is taken, and the caller answers for there being one writer. Default: a lock that ends with the process. */
  readonly lock?: "none";
  /** Default: what the directory says; 1 for a new one. */
  readonly nodeId?: number;
  /** Default: what the directory says; a random one for a new one. */
  readonly clusterId?: string;
  /** A batch takes records of several appends up to this size. Default 128 KiB. */
  readonly batchBytes?: number;
  /** Unacknowledged records held in memory; past it appends wait. Default 32 MiB, at most 64 MiB. */
  readonly bufferMemoryBytes?: number;
  /** Between two looks at what is to be compacted, in ms, at least 1. Default 15 s. Kafka: log.cleaner.backoff.ms. */
  readonly cleanerBackoffMs?: number;
  /** Default: the operating system. */
  readonly parts?: TidemarkParts;
}

export interface TopicOptions {
  /** For a new topic 1 by default. Differs from that of an existing topic: INVALID_PARTITIONS. */
  readonly partitions?: number;
  /** A segment file holds at most this many bytes. Default 1 GiB. */
  readonly segmentBytes?: number;
  /** Largest batch, uncompressed and with its header. Default 1 MiB + 12. */
  readonly maxMessageBytes?: number;
  /** What batches are compressed with: `none`, `gzip`, `snappy`, `lz4` or `zstd`. Default `none`. */
  readonly compression?: CompressionCodec;
  /**
   * What batches are stored with. `producer`, the default: as they come, `compression` of this node's own. A codec: with that one, of others too,
   * and `compression` says nothing. Kafka: compression.type, where `none` is called uncompressed.
   */
  readonly compressionType?: CompressionType;
  /** gzip 1 to 9, zstd -131072 to 22; the others have none. Of the codec that is set, now or before. Default: the codec's own. */
  readonly compressionLevel?: number;
  /** Default: as given to `open`. */
  readonly flush?: FlushMode;
  /** Segments whose newest record is older than this many ms are deleted; -1, the default: none. Looked at every five minutes. */
  readonly retentionMs?: number;
  /** Old segments are deleted as long as the partition keeps at least this many bytes; -1, the default: none. */
  readonly retentionBytes?: number;
  /** A segment takes records of so many ms, then the next one is begun: only whole segments are deleted. Default 7 days. */
  readonly segmentMs?: number;
  /**
   * How old records go. `delete`, the default: as the two retention limits say. `compact`: of each key all values but the last, and in the end keys
   * whose last value is null; every record has a key then. `compact,delete`: both. Kafka: cleanup.policy.
   */
  readonly cleanupPolicy?: CleanupPolicy;
  /** A log is compacted when more than this part of its sealed bytes is new since the last time, 0 to 1. Default 0.5. Kafka: min.cleanable.dirty.ratio. */
  readonly minCleanableDirtyRatio?: number;
  /** Records younger than so many ms are not compacted. Default 0. Kafka: min.compaction.lag.ms. */
  readonly minCompactionLagMs?: number;
  /** Records older than so many ms are compacted whatever the ratio. At least 1, and `minCompactionLagMs`. Default: none. Kafka: max.compaction.lag.ms. */
  readonly maxCompactionLagMs?: number;
  /** A key whose last value is null is still read for so many ms after it was first compacted. Default one day. Kafka: delete.retention.ms. */
  readonly deleteRetentionMs?: number;
  /** `CreateTime`, the default: the record's own. `LogAppendTime`: the log's clock, whatever the record says. Kafka: message.timestamp.type. */
  readonly timestampType?: TimestampType;
  /** A record whose timestamp is more than so many ms in the past is refused. Default: none is. Kafka: message.timestamp.before.max.ms. */
  readonly timestampBeforeMaxMs?: number;
  /** A record whose timestamp is more than so many ms in the future is refused. Default one hour. Kafka: message.timestamp.after.max.ms. */
  readonly timestampAfterMaxMs?: number;
}

const INT32_MAX = 2 ** 31 - 1;
const CLEANUP_POLICIES: readonly CleanupPolicy[] = ["delete", "compact", "compact,delete"];
const TIMESTAMP_TYPES: readonly TimestampType[] = ["CreateTime", "LogAppendTime"];

/** @throws TidemarkError INVALID_REQUEST */
export function checkOptions(options: TidemarkOptions): void {
  if (typeof options?.directory !== "string" || options.directory === "") {
    throw new TidemarkError("INVALID_REQUEST", "directory is missing");
  }
  const { flush, lock, nodeId, batchBytes, bufferMemoryBytes, clusterId, cleanerBackoffMs } = options;
  checkChoice("flush", flush, ["none", "always"]);
  checkChoice("lock", lock, ["none"]);
  checkInteger("nodeId", nodeId, 0, INT32_MAX);
  checkInteger("cleanerBackoffMs", cleanerBackoffMs, 1, INT32_MAX);
  checkInteger("batchBytes", batchBytes, RECORD_BATCH_OVERHEAD, INT32_MAX);
  // No more than one partition takes, or an append would be refused where it should wait.
  checkInteger("bufferMemoryBytes", bufferMemoryBytes, 1, QUEUED_BYTES_MAX);
  if (clusterId !== undefined && clusterId === "") throw new TidemarkError("INVALID_REQUEST", "clusterId is empty");
}

/** @throws TidemarkError INVALID_CONFIG */
export function checkTopicOptions(topic: string, options: TopicOptions): void {
  asInvalidConfig(topic, () => {
    checkChoice("flush", options.flush, ["none", "always"]);
    checkChoice("compression", options.compression, COMPRESSION_CODECS);
    checkChoice("compressionType", options.compressionType, COMPRESSION_TYPES);
    // A segment has to hold at least one small batch.
    checkInteger("segmentBytes", options.segmentBytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    checkInteger("maxMessageBytes", options.maxMessageBytes, SEGMENT_BYTES_MIN, INT32_MAX);
    checkInteger("retentionMs", options.retentionMs, -1, Number.MAX_SAFE_INTEGER);
    checkInteger("retentionBytes", options.retentionBytes, -1, Number.MAX_SAFE_INTEGER);
    checkInteger("segmentMs", options.segmentMs, 1, Number.MAX_SAFE_INTEGER);
    checkChoice("cleanupPolicy", options.cleanupPolicy, CLEANUP_POLICIES);
    checkRatio("minCleanableDirtyRatio", options.minCleanableDirtyRatio);
    checkInteger("minCompactionLagMs", options.minCompactionLagMs, 0, Number.MAX_SAFE_INTEGER);
    checkInteger("maxCompactionLagMs", options.maxCompactionLagMs, 1, Number.MAX_SAFE_INTEGER);
    checkInteger("deleteRetentionMs", options.deleteRetentionMs, 0, Number.MAX_SAFE_INTEGER);
    checkChoice("timestampType", options.timestampType, TIMESTAMP_TYPES);
    checkInteger("timestampBeforeMaxMs", options.timestampBeforeMaxMs, 0, Number.MAX_SAFE_INTEGER);
    checkInteger("timestampAfterMaxMs", options.timestampAfterMaxMs, 0, Number.MAX_SAFE_INTEGER);
  });
}

function asInvalidConfig(topic: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    if (!(error instanceof TidemarkError)) throw error;
    throw new TidemarkError("INVALID_CONFIG", `topic "${topic}": ${error.message}`, { topic });
  }
}

/** What this node's own appends are compressed with. */
export function appendCodecOf({ compression, compressionType }: TopicConfig): CompressionCodec {
  return compressionType === "producer" ? compression : compressionType;
}

/** @throws TidemarkError INVALID_REQUEST */
function checkCompressionLevel(codec: CompressionCodec, level: number | undefined): void {
  if (level === undefined) return;
  const levels = codec === "none" ? undefined : compressionLevels(codec);
  if (levels === undefined) {
    throw new TidemarkError("INVALID_REQUEST", `compression ${codec} has no levels (given: ${level})`);
  }
  checkInteger("compressionLevel", level, levels.min, levels.max);
}

/** Room for a batch of one record with a little content. */
const SEGMENT_BYTES_MIN = 128;

function checkChoice(name: string, value: string | undefined, choices: readonly string[]): void {
  if (value === undefined || choices.includes(value)) return;
  throw new TidemarkError("INVALID_REQUEST", `${name} is one of ${choices.join(", ")}, not ${value}`);
}

function checkInteger(name: string, value: number | undefined, min: number, max: number): void {
  if (value === undefined || (Number.isInteger(value) && value >= min && value <= max)) return;
  throw new TidemarkError("INVALID_REQUEST", `${name} is an integer in ${min}..${max}, not ${value}`);
}

function checkRatio(name: string, value: number | undefined): void {
  if (value === undefined || (typeof value === "number" && value >= 0 && value <= 1)) return;
  throw new TidemarkError("INVALID_REQUEST", `${name} is a number in 0..1, not ${value}`);
}

/** What topics of this node are made with. */
export function defaultsOf({ flush = "always" }: TidemarkOptions): TopicConfig {
  return { ...DEFAULT_LOG_CONFIG, flush, compression: "none" };
}

/**
 * `base` with the options that are given.
 * @throws TidemarkError INVALID_CONFIG when they contradict each other, or what the topic was set to before
 */
export function configOf(topic: string, base: TopicConfig, options: TopicOptions): TopicConfig {
  const given = Object.fromEntries(
    CONFIG_OPTIONS.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]),
  ) as Partial<TopicConfig>;
  // A level belongs to its codec.
  const isSameCodec = appendCodecOf({ ...base, ...given }) === appendCodecOf(base);
  const compressionLevel = options.compressionLevel ?? (isSameCodec ? base.compressionLevel : undefined);
  const config = { ...base, ...given, compressionLevel };
  asInvalidConfig(topic, () => checkCompressionLevel(appendCodecOf(config), compressionLevel));
  const { minCompactionLagMs, maxCompactionLagMs } = config;
  if (minCompactionLagMs <= maxCompactionLagMs) return config;
  const message = `topic "${topic}": minCompactionLagMs ${minCompactionLagMs} is above maxCompactionLagMs ${maxCompactionLagMs}`;
  throw new TidemarkError("INVALID_CONFIG", message, { topic });
}

/** What becomes part of a topic's configuration as it is given. */
const CONFIG_OPTIONS = [
  "segmentBytes",
  "maxMessageBytes",
  "flush",
  "compression",
  "compressionType",
  "retentionMs",
  "retentionBytes",
  "segmentMs",
  "cleanupPolicy",
  "minCleanableDirtyRatio",
  "minCompactionLagMs",
  "maxCompactionLagMs",
  "deleteRetentionMs",
  "timestampType",
  "timestampBeforeMaxMs",
  "timestampAfterMaxMs",
] as const satisfies readonly (keyof TopicConfig & keyof TopicOptions)[];

export function isSameConfig(a: TopicConfig, b: TopicConfig): boolean {
  const keys = Object.keys({ ...a, ...b }) as (keyof TopicConfig)[];
  return keys.every((key) => a[key] === b[key]);
}
