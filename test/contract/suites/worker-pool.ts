import { gunzipSync, gzipSync } from "node:zlib";
import { describe, expect } from "vitest";
import type { CodecName, WorkerErrorCode, WorkerPool } from "@tidemark/base";
import { encodeUtf8, WorkerError } from "@tidemark/base";
import { encodeBatch, RECORD_BATCH_OVERHEAD, withCompressedPayload } from "@tidemark/wire";
import type { Fixture } from "./fixture.ts";
import { contractTest, expectSameBytes, patternBytes } from "./fixture.ts";

export interface WorkerPoolFixture extends Fixture {
  /** A pool that nothing ran in yet; the narrower its bounds, the more the suite sees. `dispose` closes it. */
  readonly workers: WorkerPool;
}

type MakeFixture = () => Promise<WorkerPoolFixture>;

/** CRC-32C of the ASCII digits "123456789", the check value of the polynomial's catalogue entry. */
const CHECK_CRC32C = 0xe306_9283;
const OUTPUT_BYTES_MAX = 10_000_000;
const CODECS: readonly CodecName[] = ["gzip", "snappy", "lz4", "zstd"];

/** The contract of `WorkerPool`. */
export function describeWorkerPool(name: string, makeFixture: MakeFixture): void {
  describe(`WorkerPool: ${name}`, () => {
    jobTests(makeFixture);
    refusalTests(makeFixture);
    memoryTests(makeFixture);
    manyJobsTests(makeFixture);
    closeTests(makeFixture);
  });
}

async function expectWorkerError(call: () => Promise<unknown>, code: WorkerErrorCode): Promise<void> {
  const promise = call();
  const error = await promise.then(
    () => expect.fail(`the job should reject with ${code}`),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(WorkerError);
  expect(error).toMatchObject({ code });
}

/** gzip of `bytes` in memory of its own, as the job takes it over. */
function gzip(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(gzipSync(bytes));
}

function jobTests(makeFixture: MakeFixture): void {
  contractTest(makeFixture, "compress gives gzip that zlib reads, at every level asked", async ({ workers }) => {
    const text = encodeUtf8("tidemark ".repeat(2000));
    for (const level of [undefined, 1, 6, 9]) {
      const output = await workers.run("compress", { codec: "gzip", payload: text.slice(), level });
      expect(output.length).toBeLessThan(text.length / 10);
      expectSameBytes(gunzipSync(output), text);
    }
  });

  for (const codec of CODECS) {
    contractTest(
      makeFixture,
      `${codec}: compress, decompress and validate, in the pool and at once`,
      async ({ workers }) => {
        const records = Array.from({ length: 200 }, (_, at) => ({
          key: null,
          value: patternBytes(90, at % 3),
          timestamp: at,
        }));
        const batch = encodeBatch(records);
        const section = batch.slice(RECORD_BATCH_OVERHEAD);
        const output = await workers.run("compress", { codec, payload: section.slice(), level: undefined });
        expect(output.length).toBeLessThan(section.length / 2);
        expectSameBytes(workers.runNow("compress", { codec, payload: section, level: undefined }), output);
        const compressed = withCompressedPayload(batch, codec, output);
        const input = { codec, payload: output, outputBytesMax: section.length };
        expectSameBytes(workers.runNow("decompress", input), section);
        expect(input.payload.length).toBeGreaterThan(0); // At once the payload stays the caller's.
        expectSameBytes(await workers.run("decompress", { ...input, payload: output.slice() }), section);
        const check = { payload: compressed, outputBytesMax: section.length };
        expect(workers.runNow("validate", check)).toEqual({ maxTimestamp: 199, minTimestamp: 0, keylessCount: 200 });
        await expectWorkerError(
          () => workers.run("validate", { payload: compressed.slice(), outputBytesMax: section.length - 1 }),
          "MESSAGE_TOO_LARGE",
        );
        const odd = workers.runNow("compress", { codec, payload: section.subarray(1), level: undefined });
        await expectWorkerError(
          () => workers.run("validate", { payload: withCompressedPayload(batch, codec, odd), outputBytesMax: 100_000 }),
          "INVALID_RECORD",
        );
        const recompress = { ...check, codec: "none", level: undefined } as const;
        const summary = { maxTimestamp: 199, minTimestamp: 0, keylessCount: 200 };
        const plain = await workers.run("recompress", { ...recompress, payload: compressed.slice() });
        expect(plain.records).toEqual(summary);
        expectSameBytes(plain.batch, batch);
        const again = workers.runNow("recompress", { ...recompress, payload: batch, codec });
        expectSameBytes(again.batch, compressed);
        await expectWorkerError(
          () => workers.run("recompress", { ...recompress, payload: compressed.slice(), outputBytesMax: 100 }),
          "MESSAGE_TOO_LARGE",
        );
        expect(await workers.run("validate", check)).toEqual(summary);
      },
    );
  }

  contractTest(makeFixture, "compress and decompress an empty payload", async ({ workers }) => {
    const output = await workers.run("compress", { codec: "gzip", payload: new Uint8Array(0), level: undefined });
    expect(gunzipSync(output)).toHaveLength(0);
    const back = await workers.run("decompress", { codec: "gzip", payload: output, outputBytesMax: 100 });
    expect(back).toHaveLength(0);
  });

  contractTest(makeFixture, "decompress restores, to plain bytes", async ({ workers }) => {
    const content = patternBytes(200_000);
    const output = await workers.run("decompress", {
      codec: "gzip",
      payload: gzip(content),
      outputBytesMax: OUTPUT_BYTES_MAX,
    });
    expect(output).toBeInstanceOf(Uint8Array);
    expectSameBytes(output, content);
  });

  contractTest(makeFixture, "decompress reads members one after another as one payload", async ({ workers }) => {
    const payload = Uint8Array.from([...gzip(encodeUtf8("first ")), ...gzip(encodeUtf8("second"))]);
    const output = await workers.run("decompress", { codec: "gzip", payload, outputBytesMax: 100 });
    expectSameBytes(output, encodeUtf8("first second"));
  });

  contractTest(makeFixture, "crc32c gives the catalogue's check value, unsigned", async ({ workers }) => {
    expect(await workers.run("crc32c", { payload: encodeUtf8("123456789") })).toBe(CHECK_CRC32C);
    expect(await workers.run("crc32c", { payload: new Uint8Array(0) })).toBe(0);
    // 32 bytes of zeros: RFC 3720, B.4.
    expect(await workers.run("crc32c", { payload: new Uint8Array(32) })).toBe(0x8a91_36aa);
  });
}

function refusalTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "decompress of what is not gzip, is cut or fails its checksum is CORRUPT_MESSAGE",
    async ({ workers }) => {
      const whole = gzip(patternBytes(5000));
      const flipped = whole.slice();
      flipped[flipped.length - 6] = (flipped[flipped.length - 6] ?? 0) ^ 1;
      const inputs = [patternBytes(100), whole.slice(0, -1), whole.slice(0, 5), flipped, new Uint8Array(0)];
      for (const payload of inputs) {
        await expectWorkerError(
          () => workers.run("decompress", { codec: "gzip", payload, outputBytesMax: OUTPUT_BYTES_MAX }),
          "CORRUPT_MESSAGE",
        );
      }
    },
  );

  contractTest(
    makeFixture,
    "decompress up to the limit passes, one byte more is MESSAGE_TOO_LARGE",
    async ({ workers }) => {
      const payload = gzip(new Uint8Array(100_000));
      const output = await workers.run("decompress", {
        codec: "gzip",
        payload: payload.slice(),
        outputBytesMax: 100_000,
      });
      expect(output).toHaveLength(100_000);
      await expectWorkerError(
        () => workers.run("decompress", { codec: "gzip", payload, outputBytesMax: 99_999 }),
        "MESSAGE_TOO_LARGE",
      );
    },
  );

  contractTest(makeFixture, "a failed job fails itself only", async ({ workers }) => {
    const outcomes = await Promise.allSettled(
      Array.from({ length: 30 }, (_, index) =>
        index % 3 === 1
          ? workers.run("decompress", { codec: "gzip", payload: patternBytes(50, index), outputBytesMax: 100 })
          : workers.run("crc32c", { payload: encodeUtf8("123456789") }),
      ),
    );
    outcomes.forEach((outcome, index) => {
      if (index % 3 === 1) expect(outcome).toMatchObject({ status: "rejected", reason: { code: "CORRUPT_MESSAGE" } });
      else expect(outcome).toEqual({ status: "fulfilled", value: CHECK_CRC32C });
    });
  });
}

function memoryTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "BR-057: a payload may be a view: what lies around it stays the caller's",
    async ({ workers }) => {
      const whole = patternBytes(3000);
      const crc = await workers.run("crc32c", { payload: whole.subarray(1000, 2000) });
      expect(whole).toHaveLength(3000);
      expectSameBytes(whole.subarray(0, 1000), patternBytes(3000).subarray(0, 1000));
      expectSameBytes(whole.subarray(2000), patternBytes(3000).subarray(2000));
      expect(crc).toBe(await workers.run("crc32c", { payload: patternBytes(3000).slice(1000, 2000) }));
    },
  );

  contractTest(makeFixture, "BR-057: a payload may lie in a shared pool of small buffers", async ({ workers }) => {
    const pooled = Buffer.from("123456789");
    const neighbour = Buffer.from("neighbour");
    expect(pooled.buffer.byteLength).toBeGreaterThan(pooled.length);
    expect(await workers.run("crc32c", { payload: pooled })).toBe(CHECK_CRC32C);
    expect(neighbour.toString()).toBe("neighbour");
  });
}

function manyJobsTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "hundreds of jobs at once, more than any queue holds, each get their own result",
    async ({ workers }) => {
      const contents = Array.from({ length: 100 }, (_, index) => patternBytes(500 + index * 7, index));
      const expectedCrcs: number[] = [];
      for (const content of contents) expectedCrcs.push(await workers.run("crc32c", { payload: content.slice() }));
      const crcs = contents.map((content) => workers.run("crc32c", { payload: content.slice() }));
      const restored = contents.map((content) =>
        workers.run("decompress", { codec: "gzip", payload: gzip(content), outputBytesMax: OUTPUT_BYTES_MAX }),
      );
      const compressed = contents.map((content) =>
        workers.run("compress", { codec: "gzip", payload: content.slice(), level: 1 }),
      );
      expect(await Promise.all(crcs)).toEqual(expectedCrcs);
      expect(new Set(expectedCrcs).size).toBe(100);
      (await Promise.all(restored)).forEach((output, index) =>
        expectSameBytes(output, contents[index] ?? new Uint8Array()),
      );
      (await Promise.all(compressed)).forEach((output, index) =>
        expectSameBytes(gunzipSync(output), contents[index] ?? new Uint8Array()),
      );
    },
  );
}

function closeTests(makeFixture: MakeFixture): void {
  contractTest(makeFixture, "close waits for the jobs called before it, waiting ones too", async ({ workers }) => {
    let done = 0;
    const jobs = Array.from({ length: 40 }, async () => {
      const crc = await workers.run("crc32c", { payload: encodeUtf8("123456789") });
      done++;
      return crc;
    });
    await workers.close();
    expect(done).toBe(40);
    expect(await Promise.all(jobs)).toEqual(Array.from({ length: 40 }, () => CHECK_CRC32C));
  });

  contractTest(
    makeFixture,
    "after close every job rejects with CLOSED; close may be called again",
    async ({ workers }) => {
      await workers.run("crc32c", { payload: new Uint8Array(1) });
      await Promise.all([workers.close(), workers.close()]);
      await workers.close();
      await expectWorkerError(() => workers.run("crc32c", { payload: new Uint8Array(1) }), "CLOSED");
      await expectWorkerError(
        () => workers.run("compress", { codec: "gzip", payload: new Uint8Array(1), level: undefined }),
        "CLOSED",
      );
    },
  );

  contractTest(makeFixture, "a pool that never ran a job closes", async ({ workers }) => {
    await workers.close();
    await expectWorkerError(() => workers.run("crc32c", { payload: new Uint8Array(1) }), "CLOSED");
  });
}
