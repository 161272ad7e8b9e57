import { encodeUtf8, parseUtf8 } from "@tidemark/base";
import { COMPRESSION_CODECS } from "@tidemark/wire";
import type { CompressionCodec } from "@tidemark/wire";
import { DEFAULT_LOG_CONFIG } from "./config.ts";
import type { CompressionType, LogConfig } from "./config.ts";
import { isUuid } from "./uuid.ts";

/** What a topic is set to, kept in `State` under `topic/<name>`. */
export interface TopicConfig extends LogConfig {
  /** What producers of this node compress batches with, unless `compressionType` says it. */
  readonly compression: CompressionCodec;
}

/**
 * - `ready`: its directories hold data that counts;
 * - `incomplete`: being made or removed when the process ended. Nothing in it was ever promised, or not any more: the next
 *   open removes what there is.
 */
export type TopicStatus = "incomplete" | "ready";

export interface TopicDescription {
  readonly name: string;
  /** Kafka's uuid spelling. */
  readonly topicId: string;
  /** Partitions are numbered `[0, partitions)`. */
  readonly partitions: number;
  readonly config: TopicConfig;
}

export const COMPRESSION_TYPES: readonly CompressionType[] = ["producer", ...COMPRESSION_CODECS];

const TOPIC_KEY_PREFIX = "topic/";

export function topicKey(name: string): string {
  return TOPIC_KEY_PREFIX + name;
}

export const TOPIC_KEYS = TOPIC_KEY_PREFIX;

export function encodeTopic(topic: TopicDescription, status: TopicStatus): Uint8Array {
  const { topicId, partitions, config } = topic;
  return encodeUtf8(JSON.stringify({ status, topicId, partitions, ...config }));
}

/** The topic, or `undefined` when the value is none: it is then rebuilt from its directories, as if it had been lost. */
export function decodeTopic(
  name: string,
  bytes: Uint8Array,
): { readonly topic: TopicDescription; readonly status: TopicStatus } | undefined {
  const fields = parseObject(bytes);
  if (fields === undefined) return undefined;
  const {
    status,
    topicId,
    partitions,
    segmentBytes,
    indexIntervalBytes,
    maxMessageBytes,
    flush,
    compression,
    compressionLevel,
  } = fields;
  // What a topic of an earlier version does not say is as it was then.
  const settings = { ...DEFAULT_LOG_CONFIG, ...fields };
  const { flushBytes, segmentMs, segmentJitterMs, segmentIndexBytes } = settings;
  const { timestampType, timestampBeforeMaxMs, timestampAfterMaxMs } = settings;
  const { retentionMs, retentionBytes, ignoresFutureTimestamps, fileDeleteDelayMs } = settings;
  if (status !== "ready" && status !== "incomplete") return undefined;
  if (typeof topicId !== "string" || !isUuid(topicId) || !isCount(partitions) || partitions === 0) return undefined;
  if (!isCount(segmentBytes) || !isCount(indexIntervalBytes) || !isCount(maxMessageBytes)) return undefined;
  if (!isCount(flushBytes) || flushBytes === 0) return undefined;
  if (!isCount(segmentMs) || !isCount(segmentJitterMs) || !isCount(segmentIndexBytes)) return undefined;
  if (timestampType !== "CreateTime" && timestampType !== "LogAppendTime") return undefined;
  if (!isCount(timestampBeforeMaxMs) || !isCount(timestampAfterMaxMs)) return undefined;
  if (!isLimit(retentionMs) || !isLimit(retentionBytes) || !isCount(fileDeleteDelayMs)) return undefined;
  if (typeof ignoresFutureTimestamps !== "boolean") return undefined;
  const { cleanupPolicy, deleteRetentionMs, minCleanableDirtyRatio, minCompactionLagMs, maxCompactionLagMs } = settings;
  if (cleanupPolicy !== "delete" && cleanupPolicy !== "compact" && cleanupPolicy !== "compact,delete") return undefined;
  if (!isCount(deleteRetentionMs) || !isCount(minCompactionLagMs) || !isCount(maxCompactionLagMs)) return undefined;
  if (!isRatio(minCleanableDirtyRatio) || minCompactionLagMs > maxCompactionLagMs) return undefined;
  if (flush !== "none" && flush !== "always") return undefined;
  const codec = COMPRESSION_CODECS.find((name) => name === compression);
  const compressionType = COMPRESSION_TYPES.find((name) => name === settings.compressionType);
  if (
    codec === undefined ||
    compressionType === undefined ||
    !(compressionLevel === undefined || Number.isSafeInteger(compressionLevel))
  )
    return undefined;
  const config: TopicConfig = {
    segmentBytes,
    indexIntervalBytes,
    maxMessageBytes,
    flush,
    flushBytes,
    segmentMs,
    segmentJitterMs,
    segmentIndexBytes,
    timestampType,
    timestampBeforeMaxMs,
    timestampAfterMaxMs,
    retentionMs,
    retentionBytes,
    cleanupPolicy,
    deleteRetentionMs,
    minCleanableDirtyRatio,
    minCompactionLagMs,
    maxCompactionLagMs,
    ignoresFutureTimestamps,
    fileDeleteDelayMs,
    compression: codec,
    compressionType,
    compressionLevel: compressionLevel as number | undefined,
  };
  return { topic: { name, topicId, partitions, config }, status };
}

function parseObject(bytes: Uint8Array): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(parseUtf8(bytes) ?? "");
    return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isRatio(value: unknown): value is number {
  return typeof value === "number" && value >= 0 && value <= 1;
}

/** A count, or -1: none. */
function isLimit(value: unknown): value is number {
  return value === -1 || isCount(value);
}
