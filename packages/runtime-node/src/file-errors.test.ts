import { describe, expect, test } from "vitest";
import { FileError } from "@tidemark/base";
import { systemErrorCode, toFileError } from "./file-errors.ts";

function systemError(code: string): Error {
  return Object.assign(new Error(`${code}: said by the system`), { code });
}

describe("toFileError", () => {
  test.each([
    "EACCES",
    "EBADF",
    "EBUSY",
    "EEXIST",
    "EIO",
    "EISDIR",
    "EMFILE",
    "ENOENT",
    "ENOSPC",
    "ENOTDIR",
    "ENOTEMPTY",
    "ENOTSUP",
    "EROFS",
  ])("keeps %s", (code) => {
    expect(toFileError(systemError(code), "open", "p").code).toBe(code);
  });

  test.each([
    ["EPERM", "EACCES"],
    ["ENFILE", "EMFILE"],
    ["EDQUOT", "ENOSPC"],
    ["EXDEV", "EIO"],
    ["ENAMETOOLONG", "EIO"],
    ["EFBIG", "EIO"],
    ["EREMOTEIO", "EIO"],
    ["", "EIO"],
  ])("takes %s for %s", (systemCode, code) => {
    expect(toFileError(systemError(systemCode), "write", "p").code).toBe(code);
  });

  test("keeps operation, path and the original as the cause", () => {
    const cause = systemError("EDQUOT");
    const error = toFileError(cause, "write", "/d/f");
    expect(error).toBeInstanceOf(FileError);
    expect(error).toMatchObject({ code: "ENOSPC", operation: "write", path: "/d/f", cause });
    expect(error.message).toBe("ENOSPC: write /d/f");
  });

  test("takes anything that is no system error for EIO, and leaves a FileError as it is", () => {
    expect(toFileError("text", "read", "p")).toMatchObject({ code: "EIO", cause: "text" });
    expect(toFileError(Object.assign(new Error("x"), { code: 5 }), "read", "p").code).toBe("EIO");
    const error = new FileError("EBUSY", "lock", "p");
    expect(toFileError(error, "read", "q")).toBe(error);
  });

  test("systemErrorCode is empty for what has none", () => {
    expect(systemErrorCode(systemError("EIO"))).toBe("EIO");
    expect(systemErrorCode(new Error("x"))).toBe("");
    expect(systemErrorCode({ code: "EIO" })).toBe("");
  });
});
