import { FileError } from "@tidemark/base";

/** Exit codes of the command. */
export const EXIT_OK = 0;
/** The command did its work and found something wrong: damage, or a record that is not where it should be. */
export const EXIT_FOUND_PROBLEMS = 1;
/** The command could not do its work: wrong usage, or a situation its user has to change. */
export const EXIT_CANNOT = 2;

/** A situation to be told in one line, without a stack. */
export class CommandError extends Error {
  override readonly name = "CommandError";
  readonly exitCode: number;

  constructor(message: string, options?: ErrorOptions & { readonly exitCode?: number }) {
    super(message, options);
    this.exitCode = options?.exitCode ?? EXIT_CANNOT;
  }
}

/** The user stopped the command. `exitCode` is 128 plus the number of the signal, as shells count. */
export class Interrupted extends CommandError {
  constructor(signal: NodeJS.Signals, exitCode: number) {
    super(`stopped by ${signal}`, { exitCode });
  }
}

const WHAT_CODES_MEAN: Readonly<Record<string, string>> = {
  EACCES: "permission denied",
  EBUSY: "in use by another process",
  EEXIST: "exists already",
  EIO: "input/output error of the disk",
  EISDIR: "is a directory",
  EMFILE: "too many open files",
  ENAMETOOLONG: "the name is too long",
  ENOENT: "no such file or directory",
  ENOSPC: "no space left on the device",
  EDQUOT: "disk quota exceeded",
  EFBIG: "the file would become too large",
  ENOTDIR: "not a directory",
  ENOTEMPTY: "directory not empty",
  ENOTSUP: "not supported here",
  EPERM: "operation not permitted",
  EROFS: "read-only file system",
};

/**
 * The error as one line for people: never empty, never with a line break, without a stack.
 *
 * Errors of the system and of the `FileSystem` port become "PATH: what it means", also where they are only the cause of
 * another error; others keep their own message.
 */
export function describeError(error: unknown): string {
  const system = systemErrorOf(error);
  if (system !== undefined) return oneLine(system);
  if (error instanceof Error && error.message !== "") return oneLine(error.message);
  return oneLine(String(error));
}

/** The first error in the chain of causes that names a situation of the operating system. */
function systemErrorOf(error: unknown): string | undefined {
  for (let cause = error, depth = 0; cause instanceof Error && depth < 8; cause = cause.cause, depth += 1) {
    if (cause instanceof CommandError) return cause.message;
    // By name, so that commands without an engine need not load one. Its message is written for people, but for those who go
    // on with the log: of a full disk it says more than a command that ends here can keep.
    if (cause.name === "TidemarkError" && !hasCode(cause, "ENOSPC")) return cause.message;
    const { code, path } = cause as { code?: unknown; path?: unknown };
    const meaning = typeof code === "string" ? WHAT_CODES_MEAN[code] : undefined;
    if (meaning === undefined) continue;
    if (cause instanceof FileError && cause.code === "EIO" && cause.cause instanceof Error) continue; // The original says more.
    return typeof path === "string" ? `${path}: ${meaning}` : `${meaning} (${String(code)})`;
  }
  return undefined;
}

function oneLine(text: string): string {
  const [first = ""] = text.split(/[\r\n]/u).filter((line) => line.trim() !== "");
  return first === "" ? "unknown error" : first.trim();
}

/** Whether an error carries this code, itself or in its chain of causes. */
export function hasCode(error: unknown, code: string): boolean {
  for (let cause = error, depth = 0; cause instanceof Error && depth < 8; cause = cause.cause, depth += 1) {
    if ((cause as { code?: unknown }).code === code) return true;
  }
  return false;
}
