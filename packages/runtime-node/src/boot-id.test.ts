import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { joinPath } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { readBootId } from "./boot-id.ts";

async function bootIdOf(content: string): Promise<unknown> {
  const directory = await mkdtemp(joinPath(tmpdir(), "tidemark-boot-id-"));
  try {
    await writeFile(joinPath(directory, "boot_id"), content);
    return await readBootId(joinPath(directory, "boot_id"));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

describe("boot id", () => {
  test("the kernel's UUID, without the end of its line", async () => {
    const bootId = "6f1f8a5e-0c1d-4b0c-9a51-0123456789ab";
    expect(await bootIdOf(`${bootId}\n`)).toEqual({ type: "known", bootId });
  });

  test("a file that is absent or holds something else is unknown, with the reason", async () => {
    expect(await readBootId("/absent/boot_id")).toMatchObject({
      type: "unknown",
      reason: expect.stringContaining("ENOENT"),
    });
    expect(await bootIdOf("")).toMatchObject({ type: "unknown" });
    expect(await bootIdOf("booted yesterday\n")).toMatchObject({ type: "unknown" });
  });

  test("two reads on this machine agree", async () => {
    expect(await readBootId()).toEqual(await readBootId());
  });
});
