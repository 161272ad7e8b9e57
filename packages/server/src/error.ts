import { FileError, WorkerError } from "@tidemark/base";
import { LogError } from "@tidemark/log";
import type { LogErrorCode, LogErrorType } from "@tidemark/log";
import { StateError } from "@tidemark/runtime-node";
import { WireError } from "@tidemark/wire";
import type { WireErrorCode } from "@tidemark/wire";

/**
 * What the caller should do:
 * - `retry`: the same call may succeed later;
 * - `reopen`: close the log and open it again, after what the message says has been seen to;
 * - `fix-call`: the call is wrong and stays wrong;
 * - `restore-data`: data is damaged or missing; restore it or give it up.
 */
export type TidemarkErrorKind = "retry" | "reopen" | "fix-call" | "restore-data";

/** Kafka's error names where Kafka has one. */
export type TidemarkErrorCode =
  | Exclude<LogErrorCode, "LOG_CLOSED">
  | WireErrorCode
  | "CLOSED"
  | "DUPLICATE_SEQUENCE_NUMBER"
  | "INVALID_CONFIG"
  | "INVALID_REQUEST"
  | "REQUEST_TIMED_OUT";

const KINDS: Readonly<Record<TidemarkErrorCode, TidemarkErrorKind>> = {
  CLOSED: "reopen",
  COMPACTION_ABORTED: "retry",
  CORRUPT_MESSAGE: "restore-data",
  DUPLICATE_SEQUENCE_NUMBER: "reopen",
  FENCED_LEADER_EPOCH: "reopen",
  INCONSISTENT_CLUSTER_ID: "fix-call",
  INCONSISTENT_NODE_ID: "fix-call",
  INCONSISTENT_TOPIC_ID: "restore-data",
  INVALID_CONFIG: "fix-call",
  INVALID_PARTITIONS: "fix-call",
  INVALID_PRODUCER_EPOCH: "reopen",
  INVALID_RECORD: "fix-call",
  INVALID_REQUEST: "fix-call",
  INVALID_TIMESTAMP: "fix-call",
  INVALID_TOPIC_EXCEPTION: "fix-call",
  INVALID_TXN_STATE: "fix-call",
  KAFKA_STORAGE_ERROR: "reopen",
  LOG_DIRECTORY_LOCKED: "reopen",
  LOG_DIRECTORY_LOCK_UNSUPPORTED: "fix-call",
  MESSAGE_TOO_LARGE: "fix-call",
  META_PROPERTIES_INVALID: "restore-data",
  NOT_LEADER_OR_FOLLOWER: "reopen",
  OFFSETS_OUT_OF_ORDER: "fix-call",
  OFFSET_OUT_OF_RANGE: "fix-call",
  OUT_OF_ORDER_SEQUENCE_NUMBER: "retry",
  PARTITION_METADATA_INVALID: "restore-data",
  QUEUE_FULL: "retry",
  RECORD_LIST_TOO_LARGE: "fix-call",
  REQUEST_TIMED_OUT: "retry",
  TOPIC_ALREADY_EXISTS: "fix-call",
  TRANSACTION_COORDINATOR_FENCED: "reopen",
  UNEXPECTED_APPEND_OFFSET: "fix-call",
  UNKNOWN_DIRECTORY: "fix-call",
  UNKNOWN_TOPIC_OR_PARTITION: "fix-call",
  UNSUPPORTED_COMPRESSION_TYPE: "restore-data",
  UNSUPPORTED_FOR_MESSAGE_FORMAT: "restore-data",
  WORKER_FAILED: "retry",
};

export interface TidemarkErrorFacts {
  readonly topic?: string | undefined;
  readonly partition?: number | undefined;
  readonly offset?: number | undefined;
  /** File or directory it is about. */
  readonly path?: string | undefined;
  /** Where it differs from the code's usual one. */
  readonly kind?: TidemarkErrorKind | undefined;
}

/** Every error that the embedding API answers with. Tell them apart by `code` or `kind`; messages may change. */
export class TidemarkError extends Error {
  override readonly name = "TidemarkError";
  readonly code: TidemarkErrorCode;
  readonly kind: TidemarkErrorKind;
  readonly topic: string | undefined;
  readonly partition: number | undefined;
  readonly offset: number | undefined;
  readonly path: string | undefined;

  constructor(code: TidemarkErrorCode, message: string, facts: TidemarkErrorFacts = {}, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.kind = facts.kind ?? KINDS[code];
    this.topic = facts.topic;
    this.partition = facts.partition;
    this.offset = facts.offset;
    this.path = facts.path;
  }

  /** Whether the same call may succeed later without anybody's repair. */
  get retriable(): boolean {
    return this.kind === "retry";
  }
}

/** Which topic and partition a call was about. */
export type ErrorPlace = Pick<TidemarkErrorFacts, "topic" | "partition" | "offset">;

/** The error of a lower package as the caller's; bugs (InvariantError and the like) pass through as they are. */
export function toTidemarkError(error: unknown, place: ErrorPlace = {}): unknown {
  if (error instanceof LogError) return fromLogError(error, place);
  if (error instanceof WireError) return new TidemarkError(error.code, error.message, place, { cause: error });
  if (error instanceof FileError) {
    const facts = { ...place, path: error.path, kind: error.code === "ENOSPC" ? "retry" : "reopen" } as const;
    return new TidemarkError("KAFKA_STORAGE_ERROR", `${error.path}: ${describeFileError(error)}`, facts, {
      cause: error,
    });
  }
  if (error instanceof StateError) {
    const facts = { ...place, path: error.path, kind: isNoSpace(error.cause) ? "retry" : "reopen" } as const;
    return new TidemarkError("KAFKA_STORAGE_ERROR", error.message, facts, { cause: error });
  }
  if (error instanceof WorkerError) {
    const message = `a compressed batch cannot be read: ${error.message}`;
    // Of a batch that is stored: nothing is wrong with the call.
    const facts = error.code === "MESSAGE_TOO_LARGE" ? ({ ...place, kind: "restore-data" } as const) : place;
    return new TidemarkError(error.code, message, facts, { cause: error });
  }
  return error;
}

/** @throws what `toTidemarkError` makes of a rejection */
export async function translated<Result>(work: Promise<Result>, place: ErrorPlace = {}): Promise<Result> {
  try {
    return await work;
  } catch (error) {
    throw toTidemarkError(error, place);
  }
}

export function closedError(directory: string): TidemarkError {
  return new TidemarkError("CLOSED", `the log in ${directory} is closed`, { path: directory });
}

function isNoSpace(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "ENOSPC" || error.code === ENOSPC_NUMBER);
}

/** As lmdb spells it. */
const ENOSPC_NUMBER = 28;

function fromLogError(error: LogError, place: ErrorPlace): TidemarkError {
  const { type } = error;
  const code = type.code === "LOG_CLOSED" ? "CLOSED" : type.code;
  const facts: TidemarkErrorFacts = {
    topic: place.topic ?? ("topic" in type ? type.topic : undefined),
    partition: place.partition ?? ("partition" in type ? type.partition : undefined),
    offset: place.offset ?? offsetOf(type),
    path: "path" in type ? type.path : "directory" in type ? type.directory : undefined,
    kind: type.code === "KAFKA_STORAGE_ERROR" ? STORAGE_KINDS[type.failure] : undefined,
  };
  return new TidemarkError(code, messageOf(error, facts), facts, { cause: error });
}

const STORAGE_KINDS = {
  DAMAGED: "restore-data",
  EMFILE: "retry",
  ENOENT: "restore-data",
  ENOSPC: "retry",
  IO_ERROR: "reopen",
  SYNC_FAILED: "reopen",
} as const satisfies Record<Extract<LogErrorType, { code: "KAFKA_STORAGE_ERROR" }>["failure"], TidemarkErrorKind>;

function offsetOf(type: LogErrorType): number | undefined {
  if (type.code === "OFFSET_OUT_OF_RANGE") return type.fetchOffset;
  return type.code === "CORRUPT_MESSAGE" ? type.fromOffset : undefined;
}

/** One line for people. */
function messageOf(error: LogError, facts: TidemarkErrorFacts): string {
  const { type } = error;
  const where =
    facts.topic === undefined ? "" : `${facts.topic}${facts.partition === undefined ? "" : `-${facts.partition}`}: `;
  switch (type.code) {
    case "CORRUPT_MESSAGE":
      return `${where}${type.path ?? "batch"} is damaged at byte ${type.positionBytes}: ${type.reason}`;
    case "INCONSISTENT_CLUSTER_ID":
      return `${type.path} belongs to cluster ${type.found}, not ${type.expected}`;
    case "INCONSISTENT_NODE_ID":
      return `${type.path} belongs to node ${type.found}, not ${type.expected}`;
    case "INCONSISTENT_TOPIC_ID":
      return `${type.path} belongs to the topic with id ${type.found}, not ${type.expected}`;
    case "INVALID_PARTITIONS":
      return `${type.partitions} partitions: ${type.reason}`;
    case "INVALID_TOPIC_EXCEPTION":
      return `topic name "${type.topic}": ${type.reason}`;
    case "KAFKA_STORAGE_ERROR":
      return `${where}${storageMessage(type, error.cause)}`;
    case "LOG_CLOSED":
      return `${where}the log in ${type.directory} is closed`;
    case "LOG_DIRECTORY_LOCKED":
      return `${type.directory} is in use by another process (or another open log in this one)`;
    case "LOG_DIRECTORY_LOCK_UNSUPPORTED":
      return `${type.directory} cannot be locked here; pass lock: "none" if nothing else can open it`;
    case "MESSAGE_TOO_LARGE":
      return `${where}${type.sizeBytes} bytes in a batch of its own; at most ${type.limitBytes} are allowed`;
    case "META_PROPERTIES_INVALID":
    case "PARTITION_METADATA_INVALID":
      return `${type.path} is damaged: ${type.reason}`;
    case "OFFSET_OUT_OF_RANGE":
      return `${where}offset ${type.fetchOffset} is not in ${type.logStartOffset}..${type.logEndOffset}`;
    case "TOPIC_ALREADY_EXISTS":
      return `topic "${type.topic}" exists already`;
    case "UNKNOWN_DIRECTORY":
      return `${type.path} does not belong into a log directory: ${type.reason}`;
    case "UNSUPPORTED_FOR_MESSAGE_FORMAT": {
      const place = type.path === undefined ? "" : `, at byte ${type.positionBytes} of ${type.path}`;
      return (
        `${where}a message of format ${type.magic}, of before Kafka 0.11${place}: only format 2 is read. ` +
        "Let a Kafka broker compact the topic, which rewrites it, or read it with a client of Kafka 3 and append the records again"
      );
    }
    case "UNKNOWN_TOPIC_OR_PARTITION":
      return `there is no ${type.partition === undefined ? `topic "${type.topic}"` : `partition ${type.topic}-${type.partition}`}`;
    default:
      return `${where}${error.message}`;
  }
}

function storageMessage(type: Extract<LogErrorType, { code: "KAFKA_STORAGE_ERROR" }>, cause: unknown): string {
  const detail = cause instanceof FileError ? describeFileError(cause) : type.operation;
  switch (type.failure) {
    case "DAMAGED":
      return `${type.path} is damaged: ${detail}`;
    case "EMFILE":
      return `${type.path}: too many open files`;
    case "ENOENT":
      return `${type.path} is missing`;
    case "ENOSPC":
      return `${type.path}: no space left on the device; the same call works again when there is space`;
    case "SYNC_FAILED":
      return `${type.path} could not be synced, so the directory is offline until it is opened again: ${detail}`;
    case "IO_ERROR":
      return `${type.path}: ${detail}`;
    default:
      return String(type.failure satisfies never);
  }
}

const FILE_ERROR_TEXT: Readonly<Partial<Record<FileError["code"], string>>> = {
  EACCES: "permission denied",
  EBUSY: "in use",
  EIO: "input/output error of the disk",
  EMFILE: "too many open files",
  ENOENT: "no such file or directory",
  ENOSPC: "no space left on the device",
  ENOTDIR: "not a directory",
  EROFS: "the file system is read-only",
};

function describeFileError(error: FileError): string {
  return `${FILE_ERROR_TEXT[error.code] ?? error.code} (${error.operation})`;
}
