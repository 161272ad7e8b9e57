import { decodeUtf8, encodeUtf8 } from "@tidemark/base";
import { SimulatedDisk } from "@tidemark/simulator";
import { describe, expect, test } from "vitest";
import { readCleanShutdownMarker, takeCleanShutdownMarker, writeCleanShutdownMarker } from "./clean-shutdown.ts";

async function diskWith(content: string | undefined): Promise<SimulatedDisk> {
  const files = new SimulatedDisk();
  await files.makeDirectory("data");
  await files.syncDirectory(".");
  if (content === undefined) return files;
  const file = await files.open("data/.kafka_cleanshutdown", "create");
  await file.writeAt(encodeUtf8(content), 0);
  await file.sync();
  await file.close();
  await files.syncDirectory("data");
  return files;
}

describe("the clean-shutdown marker", () => {
  test("is Kafka's JSON without a newline, and survives a power cut", async () => {
    const files = await diskWith(undefined);
    await writeCleanShutdownMarker(files, "data", 42);
    const afterCrash = files.crashMachine("any-subset");
    const file = await afterCrash.open("data/.kafka_cleanshutdown", "read");
    const bytes = new Uint8Array(await file.size());
    await file.readAt(bytes, 0);
    expect(decodeUtf8(bytes)).toBe('{"version":0,"brokerEpoch":42}');
    expect(await readCleanShutdownMarker(afterCrash, "data")).toEqual({ brokerEpoch: 42 });
  });

  test.each(["", "rubbish", "[]", '{"version":0}', '{"brokerEpoch":"7"}'])(
    "counts by its existence: %j has no broker epoch",
    async (content) => {
      expect(await readCleanShutdownMarker(await diskWith(content), "data")).toEqual({ brokerEpoch: -1 });
    },
  );

  test("BR-020 is gone durably once it was taken", async () => {
    const files = await diskWith('{"version":0,"brokerEpoch":1}');
    expect(await takeCleanShutdownMarker(files, "data")).toEqual({ brokerEpoch: 1 });
    for (const image of files.enumerateCrashImages("any-subset")) {
      expect(await takeCleanShutdownMarker(SimulatedDisk.fromImage(image), "data")).toBeUndefined();
    }
  });

  test("BR-020 a marker that cannot be removed is an error", async () => {
    const files = await diskWith("{}");
    files.inject({ operation: "unlink", code: "EIO" });
    await expect(takeCleanShutdownMarker(files, "data")).rejects.toMatchObject({ code: "EIO" });
  });

  test.each(["write", "sync"] as const)("does not stay half written when its %s fails", async (operation) => {
    const files = await diskWith(undefined);
    files.inject({ operation, code: "ENOSPC", written: "part" });
    await expect(writeCleanShutdownMarker(files, "data", 1)).rejects.toMatchObject({ code: "ENOSPC" });
    expect(await readCleanShutdownMarker(files, "data")).toBeUndefined();
  });
});
