import { encodeUtf8, toLeaderEpoch, toOffset, WorkerError } from "@tidemark/base";
import type { CodecName } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import { CheckpointError, decodeLeaderEpochCheckpoint } from "@tidemark/epoch-cache";
import {
  decodeMetaProperties,
  decodeOffsetCheckpoint,
  decodePartitionMetadata,
  DEFAULT_LOG_CONFIG,
  LogDirectory,
  LogError,
  OffsetIndex,
  parseDirectoryName,
  parseSegmentFileName,
  PartitionLog,
  TimeIndex,
  verifyDirectory,
} from "@tidemark/log";
import { SimulatedEnvironment } from "@tidemark/simulator";
import {
  checkCrc,
  compressionCodec,
  compressPayload,
  crc32c,
  decodeRecords,
  decompressPayload,
  encodeBatch,
  encodeFrame,
  FrameDecoder,
  PeerError,
  recordsSection,
  runWorkerJob,
  scanBatch,
  validateClientHeader,
  validateRecords,
  VarintReader,
  WireError,
  withCompressedPayload,
} from "@tidemark/wire";

import { GOLDEN_BATCHES } from "../golden/vectors.ts";
import type { FuzzTarget } from "./fuzzer.ts";

const CODECS: readonly CodecName[] = ["gzip", "snappy", "lz4", "zstd"];

/** What a decompressor may make of an input here. */
const OUTPUT_BYTES_MAX = 64 * 1024;

const KIB_64 = 64 * 1024;
/** The bound of what decodes bytes into bytes and numbers. */
const PLAIN = { factor: 8, bytes: KIB_64 };
/** A header of two bytes becomes an object and a place in an array. */
const OBJECTS = { factor: 32, bytes: KIB_64 };
/** Beside objects: the room that a frame is given whose length is known and whose bytes have yet to come (ALLOCATION_BYTES_MAX). */
const FRAMED = { factor: 32, bytes: KIB_64 + 2 * 1024 ** 2 };
/** The output, the steps in which its room grew, and the library's own blocks. */
const DECOMPRESSED = { factor: 8, bytes: KIB_64 + 5 * OUTPUT_BYTES_MAX };

/** Batches as Kafka encodes them, and some of ours with more in them. */
const batches: readonly Uint8Array[] = [
  ...GOLDEN_BATCHES.map(({ bytes }) => bytes),
  encodeBatch(
    Array.from({ length: 20 }, (_, at) => ({
      key: at % 3 === 0 ? null : encodeUtf8(`key-${at}`),
      value: at % 4 === 0 ? null : encodeUtf8(`value ${at} `.repeat(at)),
      timestamp: 1_700_000_000_000 + at * 1000,
      headers: Array.from({ length: at % 5 }, (_, header) => ({
        key: `h${header}`,
        value: header === 2 ? null : encodeUtf8("v"),
      })),
    })),
    { producerId: 7, producerEpoch: 1, baseSequence: 2 ** 31 - 5 },
  ),
];

const plainBatches = batches.filter((batch) => ((batch[22] ?? 0) & 7) === 0);

function compressedBatches(codec: CodecName): Uint8Array[] {
  return plainBatches
    .filter((batch) => batch.length > 61)
    .map((batch) => withCompressedPayload(batch, codec, compressPayload(NODE_CODECS, codec, batch.subarray(61))));
}

function section(batch: Uint8Array): Uint8Array {
  return batch.slice(61);
}

function ascii(...texts: readonly string[]): Uint8Array[] {
  return texts.map((text) => encodeUtf8(text));
}

/** Length and CRCs would stop nearly all that is changed: here they always fit. */
function withFrameCrcs(frame: Uint8Array): Uint8Array {
  const fixed = frame.slice();
  if (fixed.length < 16) return fixed;
  const view = new DataView(fixed.buffer);
  view.setInt32(0, fixed.length - 4);
  view.setUint32(8, crc32c(fixed.subarray(16)));
  view.setUint32(12, crc32c(fixed.subarray(0, 12)));
  return fixed;
}

const scanning: FuzzTarget = {
  name: "batch scan",
  corpus: [...batches, Buffer.concat(batches.slice(0, 8)), Buffer.concat(batches.slice(8, 20))],
  errors: [],
  memory: PLAIN,
  weight: 100,
  run: (input) => {
    let at = 0;
    let sound = 0;
    for (;;) {
      const scan = scanBatch(input, at);
      if (scan.type !== "batch") return sound > 0 && scan.type !== "corrupt";
      if (checkCrc(input, scan.header)) sound += 1;
      at += scan.header.sizeInBytes;
    }
  },
};

const decoding: FuzzTarget = {
  name: "record decode",
  corpus: plainBatches,
  errors: [WireError],
  memory: OBJECTS,
  weight: 100,
  run: (input) => {
    const scan = scanBatch(input, 0);
    if (scan.type !== "batch") return false;
    let last: unknown;
    for (const record of decodeRecords(scan.header, recordsSection(input, scan.header))) last = record;
    return last;
  },
};

const walking: FuzzTarget = {
  name: "client records",
  corpus: plainBatches,
  errors: [WireError],
  memory: PLAIN,
  weight: 100,
  run: (input) => {
    const scan = scanBatch(input, 0);
    if (scan.type !== "batch") return false;
    const { header } = scan;
    // Whatever base offset was made of it: clients send 0, and this is about the rest.
    validateClientHeader({ ...header, baseOffset: 0 });
    return (
      compressionCodec(header) === "none" && validateRecords(header, recordsSection(input, header)).maxTimestamp >= -1
    );
  },
};

const varints: FuzzTarget = {
  name: "varints",
  corpus: [...plainBatches.map(section), Uint8Array.of(0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01)],
  errors: [],
  memory: PLAIN,
  weight: 100,
  run: (input) => {
    const reader = new VarintReader(input);
    let sum = 0;
    for (let turn = 0; reader.fault === undefined; turn += 1) {
      const value =
        turn % 3 === 0 ? reader.readVarint() : turn % 3 === 1 ? reader.readVarlong() : reader.readUnsignedVarint();
      if (Number.isNaN(value) || reader.position > input.length) throw new Error(`read ${value} at ${reader.position}`);
      sum += value;
    }
    return sum !== 0;
  },
};

function decompressing(codec: CodecName): FuzzTarget {
  return {
    name: `${codec} frames`,
    corpus: [
      ...compressedBatches(codec).map(section),
      ...GOLDEN_BATCHES.filter(({ bytes }) => (bytes[22] ?? 0) % 8 === CODECS.indexOf(codec) + 1).map(({ bytes }) =>
        section(bytes),
      ),
      compressPayload(NODE_CODECS, codec, new Uint8Array(OUTPUT_BYTES_MAX)),
      compressPayload(NODE_CODECS, codec, new Uint8Array(OUTPUT_BYTES_MAX * 4)),
    ],
    errors: [WorkerError],
    memory: DECOMPRESSED,
    weight: codec === "gzip" ? 8 : 25,
    run: (input) => decompressPayload(NODE_CODECS, codec, input, OUTPUT_BYTES_MAX),
  };
}

const validating: FuzzTarget = {
  name: "compressed batches",
  corpus: CODECS.flatMap((codec) => compressedBatches(codec)),
  errors: [WorkerError],
  memory: DECOMPRESSED,
  weight: 15,
  run: (input) => runWorkerJob(NODE_CODECS, "validate", { payload: input, outputBytesMax: OUTPUT_BYTES_MAX }),
};

const frames: FuzzTarget = {
  name: "frames between brokers",
  corpus: frameCorpus(),
  errors: [PeerError],
  memory: FRAMED,
  weight: 30,
  run: (input) => new FrameDecoder().push(withFrameCrcs(input)).length > 0,
};

function frameCorpus(): Uint8Array[] {
  const partition = { topic: "orders", partition: 3 };
  const requests = [
    {
      kind: "produce",
      acks: -1,
      timeoutMs: 1000,
      partitions: batches.slice(0, 3).map((batch) => ({ ...partition, batch })),
    },
    { kind: "describe" },
  ] as const;
  return requests.map((message) => Buffer.concat(encodeFrame({ type: "request", correlationId: 7, message })));
}

function textTarget(name: string, corpus: readonly Uint8Array[], run: (input: Uint8Array) => unknown): FuzzTarget {
  return { name, corpus, errors: [CheckpointError, LogError], memory: OBJECTS, weight: 40, run };
}

const texts: readonly FuzzTarget[] = [
  textTarget(
    "leader-epoch-checkpoint",
    ascii("0\n0\n", "0\n1\n0 0\n", "0\n3\n0 0\n5 100\n2147483647 9007199254740991\n"),
    (input) => decodeLeaderEpochCheckpoint(input, "path"),
  ),
  textTarget("offset checkpoint", ascii("0\n0\n", "0\n2\norders 3 1234\nä.b_c-d 0 0\n"), (input) =>
    decodeOffsetCheckpoint(input, "path"),
  ),
  textTarget("partition.metadata", ascii("version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg"), (input) =>
    decodePartitionMetadata(input, "path"),
  ),
  textTarget(
    "meta.properties",
    ascii(
      "#\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=AAAAAAAAAAEAAAAAAAAAAg\n",
      "version : 1\ncluster.id = a\\u0062\\\n  c\nnode.id=+7\n",
    ),
    (input) => decodeMetaProperties(input, "path"),
  ),
  textTarget(
    "names",
    ascii("orders-0", "a.b_c-12", "orders-0.0123456789abcdef0123456789abcdef-delete", "00000000000000000042.log"),
    (input) => {
      const name = Buffer.from(input).toString("latin1");
      const offset = parseSegmentFileName(name, ".log");
      return parseDirectoryName(name).type === "partition" || offset !== undefined;
    },
  ),
];

const offsetIndex: FuzzTarget = {
  name: "offset index",
  corpus: [indexBytes(3), indexBytes(200), new Uint8Array(0)],
  errors: [],
  memory: PLAIN,
  weight: 60,
  run: (input) => {
    const index = OffsetIndex.decode(toOffset(1000), input);
    if (index === undefined) return false;
    for (const offset of [0, 1000, 1500, 2 ** 40]) {
      if (!(index.lookup(offset) >= 0)) throw new Error(`position ${index.lookup(offset)}`);
    }
    if (Buffer.compare(index.encode(), input) !== 0) throw new Error("encodes to something else");
    return index;
  },
};

const timeIndex: FuzzTarget = {
  name: "time index",
  corpus: [timeIndexBytes(3), timeIndexBytes(200), new Uint8Array(0)],
  errors: [],
  memory: PLAIN,
  weight: 60,
  run: (input) => {
    const index = TimeIndex.decode(toOffset(1000), input);
    if (index === undefined) return false;
    for (const timestamp of [-1, 0, 1500, 2 ** 40]) {
      const entry = index.lookup(timestamp);
      if (entry !== undefined && !(entry.timestamp <= timestamp && entry.offset >= 1000))
        throw new Error("a wrong entry");
    }
    if (Buffer.compare(index.encode(), input) !== 0) throw new Error("encodes to something else");
    return index;
  },
};

function timeIndexBytes(count: number): Uint8Array {
  const index = new TimeIndex(toOffset(1000));
  for (let at = 1; at <= count; at += 1) index.appendEnd(1_700_000_000_000 + at * 7, 1000 + at * 42);
  return index.encode();
}

function indexBytes(count: number): Uint8Array {
  const index = new OffsetIndex(toOffset(1000));
  for (let at = 1; at <= count; at += 1) index.append(1000 + at * 7, at * 4200);
  return index.encode();
}

/** A log as leader and as follower: what it takes it can read again. */
const appending: FuzzTarget = {
  name: "log appends",
  corpus: [...batches, ...CODECS.flatMap((codec) => compressedBatches(codec).slice(0, 4))],
  errors: [LogError],
  memory: PLAIN,
  weight: 1,
  run: async (input) => {
    const environment = new SimulatedEnvironment({ seed: 1 });
    const log = await openLog(environment);
    await log.becomeLeader(toLeaderEpoch(0));
    const isFollower = (input[0] ?? 0) % 2 === 1;
    if (isFollower) await log.appendAsFollower(input, { leaderEpoch: toLeaderEpoch(2 ** 31 - 1) });
    else await log.append(input, { origin: "client" });
    return log.logEndOffset > 0;
  },
};

/** A directory whose segment, index and epoch file are one input, cut in three: it opens, and verify reads it, whatever it holds. */
const opening: FuzzTarget = {
  name: "log directory",
  corpus: [
    directoryBytes(Buffer.concat(plainBatches.slice(0, 1)), indexBytes(2), "0\n1\n0 0\n"),
    directoryBytes(stampedBatches(), new Uint8Array(0), "0\n1\n0 0\n"),
  ],
  errors: [LogError],
  memory: PLAIN,
  weight: 1,
  run: async (input) => {
    const environment = new SimulatedEnvironment({ seed: 1 });
    const { files, workers } = environment;
    const [segment = input, index = input, epochs = input] = splitDirectory(input);
    await files.makeDirectory("data/orders-0");
    for (const [name, bytes] of [
      ["00000000000000000000.log", segment],
      ["00000000000000000000.index", index],
      ["00000000000000000000.timeindex", index],
      ["leader-epoch-checkpoint", epochs],
    ] as const) {
      const file = await files.open(`data/orders-0/${name}`, "create");
      if (bytes.length > 0) await file.writeAt(bytes, 0);
      await file.close();
    }
    const report = await verifyDirectory({ files, workers, directory: "data/orders-0" });
    const log = await openLog(environment);
    await log.becomeLeader(toLeaderEpoch(2 ** 31 - 2));
    await log.append(encodeBatch([{ key: null, value: null, timestamp: 1 }]), { origin: "client" });
    return report.isSound;
  },
};

function openLog(environment: SimulatedEnvironment): Promise<PartitionLog> {
  const { files, state, clock, random, workers } = environment;
  return files.makeDirectory("data/orders-0").then(() =>
    PartitionLog.open({
      files,
      state,
      clock,
      random,
      workers,
      directory: "data/orders-0",
      topic: "orders",
      partition: 0,
      config: { ...DEFAULT_LOG_CONFIG, flush: "none", indexIntervalBytes: 100 },
      wasCleanShutdown: false,
      logDirectory: new LogDirectory("data"),
    }),
  );
}

function stampedBatches(): Uint8Array {
  const records = [{ key: null, value: encodeUtf8("value"), timestamp: 1 }];
  return Buffer.concat([0, 1, 2].map((baseOffset) => encodeBatch(records, { baseOffset, partitionLeaderEpoch: 0 })));
}

function directoryBytes(segment: Uint8Array, index: Uint8Array, epochs: string): Uint8Array {
  const lengths = Buffer.alloc(4);
  lengths.writeUInt16BE(segment.length, 0);
  lengths.writeUInt16BE(index.length, 2);
  return new Uint8Array(Buffer.concat([lengths, segment, index, encodeUtf8(epochs)]));
}

function splitDirectory(input: Uint8Array): Uint8Array[] {
  const bytes = Buffer.from(input);
  const segmentEnd = 4 + (bytes.length < 4 ? 0 : bytes.readUInt16BE(0));
  const indexEnd = segmentEnd + (bytes.length < 4 ? 0 : bytes.readUInt16BE(2));
  return [input.slice(4, segmentEnd), input.slice(segmentEnd, indexEnd), input.slice(indexEnd)];
}

export const TARGETS: readonly FuzzTarget[] = [
  scanning,
  decoding,
  walking,
  varints,
  ...CODECS.map(decompressing),
  validating,
  frames,
  ...texts,
  offsetIndex,
  timeIndex,
  appending,
  opening,
];
