import { FileError, InvariantError, toOffset, WorkerError } from "@tidemark/base";
import { LogError } from "@tidemark/log";
import type { LogErrorType } from "@tidemark/log";
import { StateError } from "@tidemark/runtime-node";
import { WireError } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { TidemarkError, toTidemarkError } from "./error.ts";

const storage = (failure: Extract<LogErrorType, { code: "KAFKA_STORAGE_ERROR" }>["failure"]): LogErrorType => ({
  code: "KAFKA_STORAGE_ERROR",
  failure,
  path: "d/t-0/f.log",
  operation: "write",
});

describe("what a caller is told", () => {
  test.each<[LogErrorType, string, string, string]>([
    [storage("ENOSPC"), "KAFKA_STORAGE_ERROR", "retry", "no space left"],
    [storage("SYNC_FAILED"), "KAFKA_STORAGE_ERROR", "reopen", "could not be synced"],
    [storage("IO_ERROR"), "KAFKA_STORAGE_ERROR", "reopen", "d/t-0/f.log"],
    [storage("DAMAGED"), "KAFKA_STORAGE_ERROR", "restore-data", "is damaged"],
    [storage("ENOENT"), "KAFKA_STORAGE_ERROR", "restore-data", "is missing"],
    [{ code: "QUEUE_FULL", queuedBytes: 2, limitBytes: 1 }, "QUEUE_FULL", "retry", "QUEUE_FULL"],
    [{ code: "LOG_CLOSED", directory: "d" }, "CLOSED", "reopen", "is closed"],
    [{ code: "LOG_DIRECTORY_LOCKED", directory: "d" }, "LOG_DIRECTORY_LOCKED", "reopen", "d is in use"],
    [{ code: "MESSAGE_TOO_LARGE", sizeBytes: 9, limitBytes: 8 }, "MESSAGE_TOO_LARGE", "fix-call", "at most 8"],
    [{ code: "UNKNOWN_DIRECTORY", path: "d/x", reason: "why" }, "UNKNOWN_DIRECTORY", "fix-call", "d/x"],
    [
      { code: "OFFSET_OUT_OF_RANGE", fetchOffset: 7, logStartOffset: toOffset(1), logEndOffset: toOffset(5) },
      "OFFSET_OUT_OF_RANGE",
      "fix-call",
      "7 is not in 1..5",
    ],
  ])("%j", (type, code, kind, message) => {
    const cause = new LogError(type);
    const error = toTidemarkError(cause, { topic: "t", partition: 0 });
    expect(error).toMatchObject({
      name: "TidemarkError",
      code,
      kind,
      cause,
      topic: "t",
      partition: 0,
      retriable: kind === "retry",
    });
    expect((error as TidemarkError).message).toContain(message);
    expect((error as TidemarkError).message).not.toContain("\n");
  });

  test.each([
    [new FileError("EACCES", "open", "d/f"), "KAFKA_STORAGE_ERROR", "reopen"],
    [new FileError("ENOSPC", "write", "d/f"), "KAFKA_STORAGE_ERROR", "retry"],
    [
      new StateError("IO", "d/state", "x", { cause: Object.assign(new Error("full"), { code: 28 }) }),
      "KAFKA_STORAGE_ERROR",
      "retry",
    ],
    [new StateError("CORRUPT", "d/state", "x"), "KAFKA_STORAGE_ERROR", "reopen"],
    [new WorkerError("CORRUPT_MESSAGE", "x"), "CORRUPT_MESSAGE", "restore-data"],
    [new WorkerError("MESSAGE_TOO_LARGE", "x"), "MESSAGE_TOO_LARGE", "restore-data"],
    [new WorkerError("UNSUPPORTED_COMPRESSION_TYPE", "x"), "UNSUPPORTED_COMPRESSION_TYPE", "restore-data"],
    [new WorkerError("WORKER_FAILED", "x"), "WORKER_FAILED", "retry"],
    [new WorkerError("QUEUE_FULL", "x"), "QUEUE_FULL", "retry"],
    [new WorkerError("REQUEST_TIMED_OUT", "x"), "REQUEST_TIMED_OUT", "retry"],
    [new WorkerError("CLOSED", "x"), "CLOSED", "reopen"],
    [new WireError("INVALID_RECORD", "x"), "INVALID_RECORD", "fix-call"],
  ])("%s", (cause, code, kind) => {
    expect(toTidemarkError(cause)).toMatchObject({ code, kind, cause });
  });

  test("a bug, an abort reason and an error that is ours already pass as they are", () => {
    for (const error of [new InvariantError("x", {}), new Error("reason"), "text", new TidemarkError("CLOSED", "x")]) {
      expect(toTidemarkError(error)).toBe(error);
    }
  });
});
