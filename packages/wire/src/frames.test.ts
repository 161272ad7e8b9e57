import { BufferPool, encodeUtf8 } from "@tidemark/base";
import * as fc from "fast-check";
import protobuf from "protobufjs/light.js";
import { describe, expect, test } from "vitest";
import { crc32c } from "./crc32c.ts";
import {
  encodeFrame,
  FRAME_BYTES_MAX,
  FRAME_ELEMENTS_MAX,
  FRAME_HEADER_BYTES_MAX,
  FrameDecoder,
  giveBackBatches,
} from "./frames.ts";
import type { Frame } from "./frames.ts";
import { PEER_ERROR_NUMBERS, PeerError } from "./peer-messages.ts";
import type { PeerErrorCode, PeerRequest, PeerResponse } from "./peer-messages.ts";

type Arbitraries<T> = { readonly [Field in keyof T]: fc.Arbitrary<T[Field]> };

const int32 = fc.oneof(fc.integer(), fc.constantFrom(-1, 0, 1, 2 ** 31 - 1, -(2 ** 31)));
const int64 = fc.oneof(fc.maxSafeInteger(), fc.constantFrom(-1, 0, 2 ** 32, 2 ** 53 - 1, -(2 ** 53 - 1)));
const text = fc.oneof(fc.string({ unit: "grapheme", maxLength: 12 }), fc.constantFrom("", "orders", "ä€😀\u0000"));
const bytes = fc.uint8Array({ maxLength: 300 });
const error = fc.constantFrom(...(Object.keys(PEER_ERROR_NUMBERS) as PeerErrorCode[]));
const name = { topic: text, partition: int32 };

function record<T>(fields: Arbitraries<T>): fc.Arbitrary<T> {
  return fc.record(fields) as fc.Arbitrary<T>;
}

function listOf<T>(fields: Arbitraries<T>): fc.Arbitrary<T[]> {
  return fc.array(record<T>(fields), { maxLength: 4 });
}

/** One arbitrary per kind: a kind or a field left out here does not compile. */
const requests: { readonly [Kind in PeerRequest["kind"]]: fc.Arbitrary<Extract<PeerRequest, { kind: Kind }>> } = {
  produce: record({
    kind: fc.constant("produce" as const),
    acks: fc.constantFrom(-1 as const, 0 as const, 1 as const),
    timeoutMs: int32,
    partitions: listOf({ ...name, batch: bytes }),
  }),
  fetch: record({
    kind: fc.constant("fetch" as const),
    replicaId: int32,
    brokerEpoch: int64,
    maxWaitMs: int32,
    minBytes: int32,
    maxBytes: int32,
    partitions: listOf({
      ...name,
      currentLeaderEpoch: int32,
      fetchOffset: int64,
      flushedEndOffset: int64,
      lastFetchedEpoch: int32,
      logStartOffset: int64,
      maxBytes: int32,
    }),
  }),
  offsetsForLeaderEpoch: record({
    kind: fc.constant("offsetsForLeaderEpoch" as const),
    replicaId: int32,
    brokerEpoch: int64,
    partitions: listOf({ ...name, currentLeaderEpoch: int32, leaderEpoch: int32 }),
  }),
  register: record({
    kind: fc.constant("register" as const),
    brokerId: int32,
    incarnationId: text,
    bootId: text,
    cleanShutdownBrokerEpoch: int64,
    isTailDurable: fc.boolean(),
    host: text,
    port: int32,
  }),
  alterPartition: record({
    kind: fc.constant("alterPartition" as const),
    brokerId: int32,
    brokerEpoch: int64,
    ...name,
    leaderEpoch: int32,
    partitionEpoch: int32,
    newIsr: listOf({ brokerId: int32, brokerEpoch: int64 }),
  }),
  clusterState: record({
    kind: fc.constant("clusterState" as const),
    brokerId: int32,
    brokerEpoch: int64,
    afterNumber: int64,
    maxWaitMs: int32,
  }),
  describe: record({ kind: fc.constant("describe" as const) }),
};

const responses: { readonly [Kind in PeerResponse["kind"]]: fc.Arbitrary<Extract<PeerResponse, { kind: Kind }>> } = {
  produce: record({
    kind: fc.constant("produce" as const),
    partitions: listOf({ ...name, error, baseOffset: int64, lastOffset: int64, leaderId: int32, leaderEpoch: int32 }),
  }),
  fetch: record({
    kind: fc.constant("fetch" as const),
    partitions: listOf({
      ...name,
      error,
      highWatermark: int64,
      logStartOffset: int64,
      logEndOffset: int64,
      divergingEpoch: int32,
      divergingEndOffset: int64,
      bytes,
    }),
  }),
  offsetsForLeaderEpoch: record({
    kind: fc.constant("offsetsForLeaderEpoch" as const),
    partitions: listOf({
      ...name,
      error,
      leaderEpoch: int32,
      endOffset: int64,
      logStartOffset: int64,
      logEndOffset: int64,
    }),
  }),
  register: record({ kind: fc.constant("register" as const), error, brokerEpoch: int64 }),
  alterPartition: record({
    kind: fc.constant("alterPartition" as const),
    error,
    leaderEpoch: int32,
    partitionEpoch: int32,
    isr: fc.array(int32, { maxLength: 5 }),
  }),
  clusterState: record({
    kind: fc.constant("clusterState" as const),
    error,
    number: int64,
    brokers: listOf({ brokerId: int32, brokerEpoch: int64, host: text, port: int32, isFenced: fc.boolean() }),
    partitions: listOf({
      ...name,
      number: int64,
      topicId: text,
      replicas: fc.array(int32, { maxLength: 5 }),
      isr: fc.array(int32, { maxLength: 5 }),
      leader: int32,
      leaderEpoch: int32,
      partitionEpoch: int32,
    }),
  }),
  describe: record({ kind: fc.constant("describe" as const), error, json: text }),
};

const correlationId = fc.maxSafeInteger().map(Math.abs);
const requestFrame = fc.record({
  type: fc.constant("request" as const),
  correlationId,
  message: fc.oneof(...(Object.values(requests) as fc.Arbitrary<PeerRequest>[])),
});
const responseFrame = fc.record({
  type: fc.constant("response" as const),
  correlationId,
  message: fc.oneof(...(Object.values(responses) as fc.Arbitrary<PeerResponse>[])),
});
const anyFrame: fc.Arbitrary<Frame> = fc.oneof(requestFrame, responseFrame);

function joined(parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

/** Equal content, whatever the kind of array that holds it. */
function plain(frames: readonly Frame[]): unknown {
  return JSON.parse(
    JSON.stringify(frames, (_key, value: unknown) => (value instanceof Uint8Array ? [...value] : value)),
  );
}

const PREFIX_BYTES = 16;

/** A prefix with the CRCs that it ought to have. */
function prefixed(frameBytes: number, headerBytes: number, body: Uint8Array = new Uint8Array(0)): Uint8Array {
  const frame = new Uint8Array(PREFIX_BYTES + body.length);
  const view = new DataView(frame.buffer);
  view.setUint32(0, frameBytes);
  view.setUint32(4, headerBytes);
  view.setUint32(8, crc32c(body));
  view.setUint32(12, crc32c(frame.subarray(0, 12)));
  frame.set(body, PREFIX_BYTES);
  return frame;
}

/** A frame around a hand-made header. */
function framed(header: Uint8Array, batches: Uint8Array = new Uint8Array(0)): Uint8Array {
  const body = joined([header, batches]);
  return prefixed(PREFIX_BYTES - 4 + body.length, header.length, body);
}

/** What the decoder says of the bytes; anything but frames or PeerError PROTOCOL fails the test. */
function verdict(input: Uint8Array): Frame[] | "PROTOCOL" {
  try {
    return new FrameDecoder().push(input);
  } catch (error) {
    expect(error).toBeInstanceOf(PeerError);
    expect((error as PeerError).code).toBe("PROTOCOL");
    return "PROTOCOL";
  }
}

describe("frames there and back", () => {
  test("every kind of message comes back as it was", () => {
    for (const [type, kinds] of [
      ["request", requests],
      ["response", responses],
    ] as const) {
      for (const message of Object.values(kinds) as fc.Arbitrary<PeerRequest & PeerResponse>[]) {
        fc.assert(
          fc.property(message, correlationId, (message, correlationId) => {
            const frame: Frame = { type, correlationId, message };
            expect(plain(new FrameDecoder().push(joined(encodeFrame(frame))))).toEqual(plain([frame]));
          }),
          { numRuns: 60 },
        );
      }
    }
  });

  test("frames cut anywhere give the same frames, in order", () => {
    fc.assert(
      fc.property(
        fc.array(anyFrame, { minLength: 1, maxLength: 5 }),
        fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 20 }),
        (frames, chunkSizes) => {
          const stream = joined(frames.flatMap((frame) => encodeFrame(frame)));
          const decoder = new FrameDecoder();
          const decoded: Frame[] = [];
          for (let position = 0, index = 0; position < stream.length; index++) {
            const size = chunkSizes[index % chunkSizes.length] ?? 1;
            decoded.push(...decoder.push(stream.slice(position, position + size)));
            position += size;
          }
          expect(plain(decoded)).toEqual(plain(frames));
        },
      ),
      { numRuns: 200 },
    );
  });

  test("encoding gives the batches themselves, decoding memory of its own: the chunk may be used again at once", () => {
    const batch = Uint8Array.from({ length: 5_000 }, (_, index) => index);
    const message = {
      kind: "produce",
      acks: -1,
      timeoutMs: 5,
      partitions: [{ topic: "t", partition: 3, batch }],
    } as const;
    const parts = encodeFrame({ type: "request", correlationId: 7, message });
    expect(parts).toHaveLength(2);
    expect(parts[1]).toBe(batch);
    const chunk = joined(parts);
    const frames = new FrameDecoder().push(chunk);
    chunk.fill(0xdd);
    expect(frames).toEqual([{ type: "request", correlationId: 7, message }]);
  });

  test("memory that a growing frame has outgrown goes back, and that of the frame is nobody else's", () => {
    const pool = new BufferPool({ poisons: true });
    const decoder = new FrameDecoder(pool);
    const batch = Uint8Array.from({ length: 5_000_000 }, (_, index) => index % 251);
    const message = {
      kind: "produce",
      acks: 1,
      timeoutMs: 5,
      partitions: [{ topic: "t", partition: 0, batch }],
    } as const;
    const sent = joined(encodeFrame({ type: "request", correlationId: 1, message }));
    const frames: Frame[] = [];
    for (let at = 0; at < sent.length; at += 65_536) frames.push(...decoder.push(sent.subarray(at, at + 65_536)));
    expect(pool.keptBytes).toBeGreaterThan(0);
    for (let taken = 0; taken < 8; taken += 1) pool.take(2 ** (16 + taken)).fill(0);
    const [frame] = frames;
    const received =
      frame?.message.kind === "produce" && "acks" in frame.message ? frame.message.partitions[0] : undefined;
    expect(Buffer.compare(received?.batch ?? new Uint8Array(0), batch)).toBe(0);
  });

  test("batches that are given back make room for the next frame, those that are not stay as they are", () => {
    const pool = new BufferPool({ poisons: true });
    const decoder = new FrameDecoder(pool);
    const decode = (fill: number): Frame["message"] => {
      const partitions = [
        { topic: "t", partition: 0, batch: new Uint8Array(20_000).fill(fill) },
        { topic: "t", partition: 1, batch: new Uint8Array(20_000).fill(fill + 1) },
      ];
      const message = { kind: "produce", acks: 1, timeoutMs: 5, partitions } as const;
      const [frame] = decoder.push(joined(encodeFrame({ type: "request", correlationId: fill, message })));
      return frame?.message ?? { kind: "describe" };
    };
    const batchesOf = (message: Frame["message"]): readonly Uint8Array[] =>
      message.kind === "produce" && "acks" in message ? message.partitions.map(({ batch }) => batch) : [];
    const first = decode(1);
    const second = decode(3);
    const memory = batchesOf(first)[0]?.buffer;
    giveBackBatches(first, pool);
    giveBackBatches(first, pool);
    const third = decode(5);
    expect(batchesOf(third)[0]?.buffer).toBe(memory);
    expect(batchesOf(decode(7))[0]?.buffer).not.toBe(memory);
    expect(batchesOf(second).map((batch) => batch[19_999])).toEqual([3, 4]);
    expect(batchesOf(third).map((batch) => batch[19_999])).toEqual([5, 6]);
  });

  test("a frame over chunks in several places does not keep or alias them", () => {
    const batch = new Uint8Array(3_000).fill(9);
    const message = {
      kind: "produce",
      acks: 1,
      timeoutMs: 5,
      partitions: [{ topic: "t", partition: 0, batch }],
    } as const;
    const stream = joined(encodeFrame({ type: "request", correlationId: 1, message }));
    const decoder = new FrameDecoder();
    const chunks = [stream.slice(0, 1_000), stream.slice(1_000, 1_001), stream.slice(1_001)];
    const frames = chunks.flatMap((chunk) => decoder.push(chunk));
    for (const chunk of chunks) chunk.fill(0);
    expect(plain(frames)).toEqual(plain([{ type: "request", correlationId: 1, message }]));
  });

  test("a frame larger than one allocation comes back whole", () => {
    const batch = Uint8Array.from({ length: 3 * 1024 * 1024 }, (_, index) => index ^ (index >> 8));
    const message = {
      kind: "produce",
      acks: 1,
      timeoutMs: 5,
      partitions: [{ topic: "t", partition: 0, batch }],
    } as const;
    const [first, second] = encodeFrame({ type: "request", correlationId: 1, message });
    const decoder = new FrameDecoder();
    const frames = decoder.push(first ?? batch);
    for (let position = 0; position < batch.length; position += 65_536) {
      frames.push(...decoder.push(batch.slice(position, position + 65_536)));
    }
    expect(second).toBe(batch);
    const [frame] = frames;
    const decoded =
      frame?.type === "request" && frame.message.kind === "produce" ? frame.message.partitions[0] : undefined;
    expect(decoded?.batch.length).toBe(batch.length);
    expect(decoded?.batch.every((byte, index) => byte === batch[index])).toBe(true);
  });
});

/** A second view of the format, made here and wider than ours: what a later version, or a broken peer, might send. */
function foreignHeader(bodyId: number, write: (writer: protobuf.Writer) => void): Uint8Array {
  const body = protobuf.Writer.create();
  write(body);
  return protobuf.Writer.create()
    .uint32(8)
    .uint64(1)
    .uint32((bodyId << 3) | 2)
    .bytes(body.finish())
    .finish();
}

describe("what a later version may send", () => {
  test("fields of unknown numbers are passed over", () => {
    const header = foreignHeader(15, (writer) =>
      writer
        .uint32(8)
        .sint32(0)
        .uint32((99 << 3) | 2)
        .string("new"),
    );
    expect(verdict(framed(header))).toEqual([
      { type: "response", correlationId: 1, message: { kind: "describe", error: "NONE", json: "" } },
    ]);
  });

  test("an error number that is not known here is UNKNOWN_SERVER_ERROR", () => {
    const header = foreignHeader(9, (writer) => writer.uint32(8).sint32(12_345));
    expect(verdict(framed(header))).toEqual([
      {
        type: "response",
        correlationId: 1,
        message: { kind: "register", error: "UNKNOWN_SERVER_ERROR", brokerEpoch: 0 },
      },
    ]);
  });
});

describe("malformed input is PROTOCOL", () => {
  test("a kind that is not known here, and no kind", () => {
    expect(verdict(framed(foreignHeader(200, () => undefined)))).toBe("PROTOCOL");
    expect(verdict(framed(Uint8Array.of(8, 1)))).toBe("PROTOCOL");
  });

  test("an empty header, and a header longer than its frame", () => {
    expect(verdict(prefixed(12, 0))).toBe("PROTOCOL");
    expect(verdict(prefixed(13, 2))).toBe("PROTOCOL");
    expect(verdict(prefixed(0, 1))).toBe("PROTOCOL");
    expect(verdict(prefixed(13, 1))).toEqual([]);
  });

  test("sizes over the limits, as soon as the prefix is there", () => {
    expect(verdict(prefixed(FRAME_BYTES_MAX + 1, 10))).toBe("PROTOCOL");
    expect(verdict(prefixed(FRAME_BYTES_MAX, FRAME_HEADER_BYTES_MAX + 1))).toBe("PROTOCOL");
    expect(verdict(prefixed(FRAME_BYTES_MAX, FRAME_HEADER_BYTES_MAX))).toEqual([]);
  });

  test("integers of 64 bits beyond 2^53 - 1", () => {
    const beyond = 2 ** 53 + 2; // As a double exact.
    expect(verdict(framed(foreignHeader(9, (writer) => writer.uint32(16).sint64(beyond))))).toBe("PROTOCOL");
    expect(verdict(framed(foreignHeader(9, (writer) => writer.uint32(16).sint64(-beyond))))).toBe("PROTOCOL");
    expect(verdict(framed(foreignHeader(9, (writer) => writer.uint32(16).sint64(2 ** 53 - 1))))).not.toBe("PROTOCOL");
  });

  test("acks other than -1, 0 and 1", () => {
    expect(verdict(framed(foreignHeader(2, (writer) => writer.uint32(8).sint32(2))))).toBe("PROTOCOL");
  });

  test("batch lengths that the frame does not hold, and bytes that no batch claims", () => {
    const withBatch = (lengthBytes: number): Uint8Array =>
      foreignHeader(2, (writer) => {
        const partition = protobuf.Writer.create().uint32(24).uint32(lengthBytes).finish();
        writer.uint32((3 << 3) | 2).bytes(partition);
      });
    expect(verdict(framed(withBatch(4), new Uint8Array(4)))).not.toBe("PROTOCOL");
    expect(verdict(framed(withBatch(5), new Uint8Array(4)))).toBe("PROTOCOL");
    expect(verdict(framed(withBatch(3), new Uint8Array(4)))).toBe("PROTOCOL");
    expect(verdict(framed(withBatch(2 ** 32 - 1), new Uint8Array(4)))).toBe("PROTOCOL");
  });

  test("text that is not UTF-8", () => {
    const header = foreignHeader(15, (writer) => writer.uint32(16).uint32(2));
    expect(verdict(framed(header, Uint8Array.of(0xc3, 0x28)))).toBe("PROTOCOL");
    expect(verdict(framed(header, encodeUtf8("{}")))).not.toBe("PROTOCOL");
  });

  test("a decoder that has failed fails for ever", () => {
    const decoder = new FrameDecoder();
    expect(() => decoder.push(new Uint8Array(PREFIX_BYTES).fill(255))).toThrow(PeerError);
    expect(() => decoder.push(framed(foreignHeader(14, () => undefined)))).toThrow("after a malformed frame");
  });

  test("random bytes, and random headers in a good frame, are frames or PROTOCOL and nothing else", () => {
    const garbage = fc.uint8Array({ minLength: PREFIX_BYTES, maxLength: 200 });
    let protocolErrors = 0;
    const judge = (input: Uint8Array): void => {
      if (verdict(input) === "PROTOCOL") protocolErrors++;
    };
    fc.assert(fc.property(garbage, judge), { numRuns: 1_000 });
    fc.assert(
      fc.property(garbage, garbage, (header, rest) => judge(framed(header, rest))),
      { numRuns: 1_000 },
    );
    expect(protocolErrors).toBeGreaterThan(1_000);
  });

  test("the body of a real frame with changed, missing or added bytes under good CRCs is a frame or PROTOCOL and nothing else", () => {
    const edit = fc.record({
      at: fc.nat(),
      to: fc.integer({ min: 0, max: 255 }),
      how: fc.constantFrom("set", "cut", "add"),
    });
    let protocolErrors = 0;
    fc.assert(
      fc.property(anyFrame, fc.array(edit, { minLength: 1, maxLength: 3 }), (frame, edits) => {
        const whole = joined(encodeFrame(frame));
        const headerBytes = new DataView(whole.buffer).getUint32(4);
        const damaged = [...whole.subarray(PREFIX_BYTES)];
        for (const { at, to, how } of edits) {
          const position = at % damaged.length;
          if (how === "set") damaged[position] = to;
          else damaged.splice(position, how === "cut" && damaged.length > 1 ? 1 : 0, ...(how === "add" ? [to] : []));
        }
        const body = Uint8Array.from(damaged);
        const frameBytes = PREFIX_BYTES - 4 + body.length;
        if (verdict(prefixed(frameBytes, Math.min(headerBytes, body.length), body)) === "PROTOCOL") protocolErrors++;
      }),
      { numRuns: 2_000 },
    );
    expect(protocolErrors).toBeGreaterThan(100);
  });

  test("a frame with any one bit changed, in lengths, CRCs, header or batches, is refused as soon as that part is there", () => {
    for (const [type, kinds] of [
      ["request", requests],
      ["response", responses],
    ] as const) {
      for (const kind of Object.values(kinds) as fc.Arbitrary<PeerRequest & PeerResponse>[]) {
        const [message] = fc.sample(
          kind.filter((message) => !("partitions" in message) || message.partitions.length > 0),
          { seed: 1, numRuns: 1 },
        );
        if (message === undefined) throw new Error("a sample of each kind");
        const whole = joined(encodeFrame({ type, correlationId: 7, message }));
        expect(verdict(whole)).not.toBe("PROTOCOL");
        for (let bit = 0; bit < whole.length * 8; bit += 1) {
          const damaged = whole.slice();
          damaged[bit >> 3] = (damaged[bit >> 3] ?? 0) ^ (1 << (bit & 7));
          if (verdict(damaged) !== "PROTOCOL") expect.fail(`${type} ${message.kind}: bit ${bit} is not noticed`);
          if (bit < PREFIX_BYTES * 8) expect(verdict(damaged.subarray(0, PREFIX_BYTES))).toBe("PROTOCOL");
        }
      }
    }
  });

  test("encoding refuses what no decoder takes", () => {
    const response = { kind: "describe", error: "NONE", json: "x".repeat(FRAME_BYTES_MAX) } as const;
    expect(() => encodeFrame({ type: "response", correlationId: 0, message: response })).toThrow("too large");
    const request = {
      kind: "register",
      brokerId: 0,
      incarnationId: "x".repeat(FRAME_HEADER_BYTES_MAX),
      bootId: "",
      cleanShutdownBrokerEpoch: -1,
      isTailDurable: false,
      host: "",
      port: 0,
    } as const;
    expect(() => encodeFrame({ type: "request", correlationId: 0, message: request })).toThrow("too large");
  });
});

describe("memory", () => {
  test("a header of empty elements, which would be hundreds of times larger as objects, is refused undecoded", () => {
    const headerOf = (elementCount: number): Uint8Array =>
      foreignHeader(13, (writer) => {
        for (let index = 0; index < elementCount; index++) writer.uint32((4 << 3) | 2).uint32(0);
      });
    const heapBefore = process.memoryUsage().heapUsed;
    expect(verdict(framed(headerOf(2_000_000)))).toBe("PROTOCOL");
    expect(process.memoryUsage().heapUsed - heapBefore).toBeLessThan(400 * 1024 * 1024);
    expect(verdict(framed(headerOf(FRAME_ELEMENTS_MAX + 1)))).toBe("PROTOCOL");
    expect(verdict(framed(headerOf(FRAME_ELEMENTS_MAX)))).toHaveLength(1);
  });

  test("a cluster state of 30,000 partitions fits", () => {
    const partition = {
      topic: "some-topic-of-forty-characters-in-length",
      number: 1_000_000,
      topicId: "AAAAAAAAAAAAAAAAAAAAAA",
    };
    const state = {
      ...partition,
      replicas: [1, 2, 3],
      isr: [1, 2, 3],
      leader: 1,
      leaderEpoch: 1_000,
      partitionEpoch: 1_000,
    };
    const partitions = Array.from({ length: 30_000 }, (_, partition) => ({ ...state, partition }));
    const message = { kind: "clusterState", error: "NONE", number: 1_000_000, brokers: [], partitions } as const;
    const [frame] = new FrameDecoder().push(joined(encodeFrame({ type: "response", correlationId: 1, message })));
    expect(frame?.message).toMatchObject({ number: 1_000_000, partitions: { length: 30_000 } });
  });

  test("a prefix that claims 64 MiB takes memory only as bytes come", () => {
    const decoders = Array.from({ length: 200 }, () => new FrameDecoder());
    const prefix = prefixed(FRAME_BYTES_MAX, 100, new Uint8Array(2));
    const before = process.memoryUsage().arrayBuffers;
    for (const decoder of decoders) decoder.push(prefix);
    const grownBytes = process.memoryUsage().arrayBuffers - before;
    expect(grownBytes).toBeLessThan(decoders.length * 2 * 1024 * 1024);
  });
});
