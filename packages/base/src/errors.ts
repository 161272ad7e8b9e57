/** Codes of the operating system that the engine tells apart; anything else arrives as EIO with the original as cause. */
export type FileErrorCode =
  | "EACCES"
  | "EBADF"
  | "EBUSY"
  | "EEXIST"
  | "EIO"
  | "EISDIR"
  | "EMFILE"
  | "ENOENT"
  | "ENOSPC"
  | "ENOTDIR"
  | "ENOTEMPTY"
  | "ENOTSUP"
  | "EROFS";

export type FileOperation =
  | "open"
  | "read"
  | "write"
  | "truncate"
  | "sync"
  | "size"
  | "close"
  | "rename"
  | "unlink"
  | "list"
  | "makeDirectory"
  | "removeDirectory"
  | "syncDirectory"
  | "lock";

/** What a disk said: data, not a bug. */
export class FileError extends Error {
  override readonly name = "FileError";
  readonly code: FileErrorCode;
  readonly operation: FileOperation;
  readonly path: string;

  constructor(code: FileErrorCode, operation: FileOperation, path: string, options?: ErrorOptions) {
    super(`${code}: ${operation} ${path}`, options);
    this.code = code;
    this.operation = operation;
    this.path = path;
  }
}

/**
 * - `CLOSED`: the pool is closed;
 * - `CORRUPT_MESSAGE`: the payload is none of the codec's;
 * - `INVALID_RECORD`, `INVALID_TIMESTAMP`: it decompresses, and the records in it are none;
 * - `MESSAGE_TOO_LARGE`: it decompresses to more than the caller takes;
 * - `QUEUE_FULL`: too many jobs, or too many bytes, wait for a thread already: later it may work;
 * - `REQUEST_TIMED_OUT`: the job was stopped, for it took too long;
 * - `UNSUPPORTED_COMPRESSION_TYPE`: the codec's library does not load on this platform;
 * - `WORKER_FAILED`: the thread died, or the job threw what it may not throw.
 */
export type WorkerErrorCode =
  | "CLOSED"
  | "CORRUPT_MESSAGE"
  | "INVALID_RECORD"
  | "INVALID_TIMESTAMP"
  | "MESSAGE_TOO_LARGE"
  | "QUEUE_FULL"
  | "REQUEST_TIMED_OUT"
  | "UNSUPPORTED_COMPRESSION_TYPE"
  | "WORKER_FAILED";

/** What a codec or the worker pool said of one job. */
export class WorkerError extends Error {
  override readonly name = "WorkerError";
  readonly code: WorkerErrorCode;

  constructor(code: WorkerErrorCode, message: string, options?: ErrorOptions) {
    super(`${code}: ${message}`, options);
    this.code = code;
  }
}
