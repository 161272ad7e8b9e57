import { encodeUtf8, joinPath, parseUtf8, readFileIfPresent, writeFileAtomically } from "@tidemark/base";
import type { FileSystem } from "@tidemark/base";
import { LogError } from "./error.ts";
import { isUuid, ZERO_UUID } from "./uuid.ts";

export const PARTITION_METADATA_FILE = "partition.metadata";

const PARTITION_MAX = 2 ** 31 - 1;
const TOPIC_NAME_CHARS_MAX = 249;
const DIRECTORY_NAME_CHARS_MAX = 255;

/** Directories that Kafka's log loading skips: the metadata log and the cache of tiered storage. */
const SKIPPED_DIRECTORIES: ReadonlySet<string> = new Set(["__cluster_metadata-0", "remote-log-index-cache"]);

export interface TopicPartition {
  readonly topic: string;
  /** int32, at least 0. */
  readonly partition: number;
}

/** What a directory inside a log directory is, by its name. */
export type DirectoryName =
  | { readonly type: "partition"; readonly topic: string; readonly partition: number }
  /** Waits for its removal; the topic may be cut short. */
  | { readonly type: "delete" }
  /** Set aside by Kafka (`-stray`), being moved between disks (`-future`), or not a partition's: left alone. */
  | { readonly type: "ignored" }
  | { readonly type: "unknown"; readonly reason: string };

/**
 * Reads a directory's name as Kafka does: `topic-partition`, split at the last `-`, or one of the three suffixes.
 * Source: apache/kafka storage/.../internals/log/LocalLog.java parseTopicPartitionName
 */
export function parseDirectoryName(name: string): DirectoryName {
  if (SKIPPED_DIRECTORIES.has(name)) return { type: "ignored" };
  const suffixed = /^(\S+)-(\S+)\.(\S+)-(delete|future|stray)$/.exec(name);
  if (suffixed === null && /-(?:delete|future|stray)$/.test(name)) {
    return { type: "unknown", reason: "the name has a suffix but is not of the form topic-partition.uniqueId-suffix" };
  }
  const plain = suffixed === null ? name : name.slice(0, name.lastIndexOf("."));
  const dash = plain.lastIndexOf("-");
  const topic = plain.slice(0, Math.max(dash, 0));
  if (topic === "") return { type: "unknown", reason: "the name is not of the form topic-partition" };
  const partitionText = plain.slice(dash + 1);
  const partition = /^\+?\d+$/.test(partitionText) ? Number(partitionText) : Number.NaN;
  if (!(partition <= PARTITION_MAX)) return { type: "unknown", reason: `"${partitionText}" is not a partition number` };
  if (suffixed === null) return { type: "partition", topic, partition };
  return { type: suffixed[4] === "delete" ? "delete" : "ignored" };
}

/** `topic-partition`. */
export function partitionDirectoryName({ topic, partition }: TopicPartition): string {
  return `${topic}-${partition}`;
}

/**
 * Name under which a deleted partition waits for its removal; at most 255 characters, the topic is cut for that.
 * @param uniqueId 32 hexadecimal digits
 */
export function deleteDirectoryName({ topic, partition }: TopicPartition, uniqueId: string): string {
  const suffix = `-${partition}.${uniqueId}-delete`;
  return topic.slice(0, DIRECTORY_NAME_CHARS_MAX - suffix.length) + suffix;
}

/**
 * @throws LogError INVALID_TOPIC_EXCEPTION unless the name has 1 to 249 characters of `[a-zA-Z0-9._-]` and is not `.` or `..`
 * Source: apache/kafka clients/.../common/internals/Topic.java validate
 */
export function checkTopicName(topic: string): void {
  const reason = topicNameProblem(topic);
  if (reason !== undefined) throw new LogError({ code: "INVALID_TOPIC_EXCEPTION", topic, reason });
}

function topicNameProblem(topic: string): string | undefined {
  if (topic === "") return "the name is empty";
  if (topic === "." || topic === "..") return `the name is "${topic}"`;
  if (topic.length > TOPIC_NAME_CHARS_MAX) return `the name is longer than ${TOPIC_NAME_CHARS_MAX} characters`;
  if (!/^[a-zA-Z0-9._-]+$/.test(topic)) return "a character is not one of a-z A-Z 0-9 . _ -";
  return undefined;
}

/** Bytes of `partition.metadata`: two lines, the last one without a newline, 43 bytes. */
export function encodePartitionMetadata(topicId: string): Uint8Array {
  return encodeUtf8(`version: 0\ntopic_id: ${topicId}`);
}

/**
 * The topic id of a `partition.metadata`.
 * @throws LogError PARTITION_METADATA_INVALID
 * Source: apache/kafka storage/.../internals/checkpoint/PartitionMetadataFile.java
 */
export function decodePartitionMetadata(bytes: Uint8Array, path: string): string {
  const invalid = (reason: string): LogError => new LogError({ code: "PARTITION_METADATA_INVALID", path, reason });
  const [versionLine = "", idLine = ""] = (parseUtf8(bytes) ?? "").split(/\r?\n/);
  const [versionKey, version = ""] = versionLine.split(/:\s+/);
  if (versionKey !== "version" || !/^\+?\d+$/.test(version)) throw invalid(`bad version line "${versionLine}"`);
  const [idKey, topicId = ""] = idLine.split(/:\s+/);
  if (idKey !== "topic_id" || !isUuid(topicId)) throw invalid(`bad topic id line "${idLine}"`);
  if (topicId === ZERO_UUID) throw invalid("the topic id is zero");
  return topicId;
}

/** The topic id, or `undefined` when there is no file. @throws LogError PARTITION_METADATA_INVALID @throws FileError */
export async function readPartitionMetadata(files: FileSystem, directory: string): Promise<string | undefined> {
  const path = joinPath(directory, PARTITION_METADATA_FILE);
  const bytes = await readFileIfPresent(files, path);
  return bytes === undefined ? undefined : decodePartitionMetadata(bytes, path);
}

/** Durable once it resolves, and due before the first append. @throws FileError */
export async function writePartitionMetadata(files: FileSystem, directory: string, topicId: string): Promise<void> {
  await writeFileAtomically(files, joinPath(directory, PARTITION_METADATA_FILE), encodePartitionMetadata(topicId));
}
