import type { Offset } from "@tidemark/base";
import type { LogDirectoryErrorType } from "./directory-error.ts";

/** Why a log directory or partition refuses work. `ENOSPC` and `EMFILE` pass; the others need a reopen or repair. */
export type StorageFailure = "DAMAGED" | "EMFILE" | "ENOENT" | "ENOSPC" | "IO_ERROR" | "SYNC_FAILED";

/** What the log says of an input or of its disk. Codes are Kafka's error names where Kafka has one. */
export type LogErrorType =
  | LogDirectoryErrorType
  | { readonly code: "COMPACTION_ABORTED"; readonly directory: string }
  | {
      readonly code: "CORRUPT_MESSAGE";
      readonly path: string | undefined;
      readonly positionBytes: number;
      readonly fromOffset: number | undefined;
      readonly toOffset: number | undefined;
      readonly reason: string;
    }
  | { readonly code: "FENCED_LEADER_EPOCH"; readonly requestedEpoch: number; readonly currentEpoch: number }
  | {
      readonly code: "INVALID_PRODUCER_EPOCH";
      readonly producerId: number;
      readonly producerEpoch: number;
      readonly currentEpoch: number;
    }
  | { readonly code: "INVALID_RECORD"; readonly reason: string }
  | { readonly code: "INVALID_TIMESTAMP"; readonly reason: string }
  | {
      readonly code: "INVALID_TXN_STATE";
      readonly producerId: number;
      readonly producerEpoch: number;
      readonly reason: string;
    }
  | {
      readonly code: "KAFKA_STORAGE_ERROR";
      readonly failure: StorageFailure;
      readonly path: string;
      readonly operation: string;
    }
  | { readonly code: "LOG_CLOSED"; readonly directory: string }
  | { readonly code: "MESSAGE_TOO_LARGE"; readonly sizeBytes: number; readonly limitBytes: number }
  | { readonly code: "NOT_LEADER_OR_FOLLOWER"; readonly directory: string }
  | { readonly code: "OFFSETS_OUT_OF_ORDER"; readonly baseOffset: number; readonly previousLastOffset: number }
  | {
      readonly code: "OFFSET_OUT_OF_RANGE";
      readonly fetchOffset: number;
      readonly logStartOffset: Offset;
      readonly logEndOffset: Offset;
    }
  | {
      readonly code: "OUT_OF_ORDER_SEQUENCE_NUMBER";
      readonly producerId: number;
      readonly baseSequence: number;
      readonly expectedSequence: number;
    }
  | { readonly code: "QUEUE_FULL"; readonly queuedBytes: number; readonly limitBytes: number }
  | { readonly code: "RECORD_LIST_TOO_LARGE"; readonly sizeBytes: number; readonly limitBytes: number }
  | {
      readonly code: "TRANSACTION_COORDINATOR_FENCED";
      readonly producerId: number;
      readonly coordinatorEpoch: number;
      readonly currentEpoch: number;
    }
  | { readonly code: "UNEXPECTED_APPEND_OFFSET"; readonly baseOffset: number; readonly logEndOffset: Offset }
  | { readonly code: "UNSUPPORTED_COMPRESSION_TYPE"; readonly codecId: number }
  /** A message of before Kafka 0.11, in an append or, with its place, in a segment. Nothing was changed. */
  | {
      readonly code: "UNSUPPORTED_FOR_MESSAGE_FORMAT";
      readonly magic: number;
      readonly path: string | undefined;
      readonly positionBytes: number;
    }
  /** The worker pool could not look into a compressed batch; `reason` is its own code. Nothing was appended. */
  | { readonly code: "WORKER_FAILED"; readonly reason: string };

export type LogErrorCode = LogErrorType["code"];

/** One class for the package; `type` carries the facts needed to act. */
export class LogError extends Error {
  override readonly name = "LogError";
  readonly type: LogErrorType;

  constructor(type: LogErrorType, options?: ErrorOptions) {
    super(`${type.code} ${JSON.stringify(type)}`, options);
    this.type = type;
  }

  get code(): LogErrorCode {
    return this.type.code;
  }

  /** Whether the same call may succeed later without anybody's repair. */
  get retriable(): boolean {
    const { type } = this;
    const mayPass = ["COMPACTION_ABORTED", "QUEUE_FULL", "WORKER_FAILED"];
    if (mayPass.includes(type.code)) return true;
    return type.code === "KAFKA_STORAGE_ERROR" && (type.failure === "ENOSPC" || type.failure === "EMFILE");
  }
}
