import type { FileErrorCode, FileOperation } from "@tidemark/base";
import { FileError } from "@tidemark/base";

/** What the operating system says, and the code of the port that asks for the same reaction. */
const CODES: ReadonlyMap<string, FileErrorCode> = new Map([
  ["EACCES", "EACCES"],
  ["EPERM", "EACCES"],
  ["EBADF", "EBADF"],
  ["EBUSY", "EBUSY"],
  ["EEXIST", "EEXIST"],
  ["EIO", "EIO"],
  ["EISDIR", "EISDIR"],
  ["EMFILE", "EMFILE"],
  ["ENFILE", "EMFILE"],
  ["ENOENT", "ENOENT"],
  ["ENOSPC", "ENOSPC"],
  ["EDQUOT", "ENOSPC"],
  ["ENOTDIR", "ENOTDIR"],
  ["ENOTEMPTY", "ENOTEMPTY"],
  ["ENOTSUP", "ENOTSUP"],
  ["EROFS", "EROFS"],
]);

/**
 * The error of a system call as the port's, the original kept as its cause. A code that the engine does not tell apart, and
 * anything that is no system error, is EIO: the reaction to what one does not understand is to trust the disk no more.
 */
export function toFileError(error: unknown, operation: FileOperation, path: string): FileError {
  if (error instanceof FileError) return error;
  return new FileError(CODES.get(systemErrorCode(error)) ?? "EIO", operation, path, { cause: error });
}

/** The `code` of a Node system error, or an empty string. */
export function systemErrorCode(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}
