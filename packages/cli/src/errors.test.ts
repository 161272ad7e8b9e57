import { FileError } from "@tidemark/base";
import { describe, expect, test } from "vitest";

import { CommandError, describeError, hasCode } from "./errors.ts";

describe("an error in one line", () => {
  test("an error of the file system names the path and what its code means", () => {
    expect(describeError(new FileError("ENOSPC", "write", "/d/x.log"))).toBe("/d/x.log: no space left on the device");
    const system = Object.assign(new Error("EROFS: read-only file system, open 'x'"), { code: "EROFS", path: "x" });
    expect(describeError(system)).toBe("x: read-only file system");
  });

  test("an error that wraps another is told by the cause that can be acted on", () => {
    const cause = new FileError("ENOSPC", "write", "/d/x.log");
    const wrapper = Object.assign(new Error("wrapper", { cause }), { code: "KAFKA_STORAGE_ERROR" });
    expect(describeError(wrapper)).toBe("/d/x.log: no space left on the device");
    expect(hasCode(wrapper, "ENOSPC")).toBe(true);
    expect(hasCode(wrapper, "EIO")).toBe(false);
  });

  test("it never has a line break and is never empty", () => {
    expect(describeError(new CommandError("first\nsecond"))).toBe("first");
    expect(describeError(new Error(""))).not.toBe("");
    expect(describeError("\n")).toBe("unknown error");
  });
});
