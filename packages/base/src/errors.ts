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

export type WorkerErrorCode = "CLOSED" | "CORRUPT" | "RECORD_TOO_LARGE" | "WORKER_FAILED";

/** What the worker pool said of one job. */
export class WorkerError extends Error {
  override readonly name = "WorkerError";
  readonly code: WorkerErrorCode;

  constructor(code: WorkerErrorCode, message: string, options?: ErrorOptions) {
    super(`${code}: ${message}`, options);
    this.code = code;
  }
}
