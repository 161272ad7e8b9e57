import { toLeaderEpoch, toOffset } from "@tidemark/base";
import { LeaderEpochCache } from "@tidemark/epoch-cache";
import { OffsetIndex } from "@tidemark/log";
import {
  CRC_NATIVE_BYTES_MIN,
  crc32c,
  encodeBatch,
  readBatchHeader,
  scanBatch,
  VarintReader,
  writeVarint,
} from "@tidemark/wire";
import { eventText, filledBatch, records } from "./content.ts";
import { loadCrc32cImplementations } from "./crc32c-implementations.ts";
import { microWorkload } from "./micro-workload.ts";
import type { MicroSubject } from "./micro-workload.ts";
import type { Workload } from "./workload.ts";

/** Repetitions inside one timed call of something that takes a few ns. A power of two. */
const REPEAT = 1024;
const BATCH_BYTES = 128 * 1024;

export const MICRO_WORKLOADS: readonly Workload[] = [
  crcWorkload(),
  varintWorkload(),
  encodeWorkload(),
  scanWorkload(),
  epochWorkload(),
  offsetIndexWorkload(),
];

function crcWorkload(): Workload {
  const sizes = [
    { name: "64 B", bytes: 64, repeat: 64 },
    { name: "256 B", bytes: 256, repeat: 32 },
    { name: "1 KiB", bytes: 1024, repeat: 16 },
    { name: "128 KiB", bytes: 128 * 1024, repeat: 1 },
  ];
  const ways = ["JS", "native", "automatic"] as const;
  return microWorkload({
    name: "crc32c",
    explanation: `CRC-32C of so many bytes. Automatic takes native from CRC_NATIVE_BYTES_MIN = ${CRC_NATIVE_BYTES_MIN} bytes on.`,
    subjects: sizes.flatMap(({ name }) => ways.map((way) => `${name}, ${way}`)),
    peers: [{ heading: "vs JS", subjectFor: (subject) => subject.replace(/,.*$/u, ", JS") }],
    prepare: async () => {
      const { js, native } = await loadCrc32cImplementations();
      const functions = { JS: js, native, automatic: crc32c };
      const subjects: MicroSubject[] = [];
      for (const { name, bytes, repeat } of sizes) {
        const input = eventText(bytes);
        for (const way of ways) {
          const crc = functions[way];
          if (crc === undefined) continue; // No binary for this machine: no row.
          subjects.push({
            name: `${name}, ${way}`,
            callsPerRun: repeat,
            run: () => repeated(repeat, () => crc(input)),
          });
        }
      }
      return subjects;
    },
  });
}

function repeated(count: number, run: () => number): number {
  let sum = 0;
  for (let call = 0; call < count; call += 1) sum ^= run();
  return sum;
}

function varintWorkload(): Workload {
  const ranges = [
    { name: "1 byte", below: 0x40 },
    { name: "1 to 5 bytes", below: 2 ** 31 },
  ];
  return microWorkload({
    name: "varint",
    explanation: "One zigzag varint, out of a run of different values.",
    subjects: ranges.flatMap(({ name }) => [`encode, ${name}`, `decode, ${name}`]),
    prepare: () =>
      ranges.flatMap(({ name, below }): MicroSubject[] => {
        const values = Int32Array.from({ length: REPEAT }, (_, at) => Math.floor(below ** ((at % 31) / 31)) % below);
        const target = new Uint8Array(5 * REPEAT);
        const encodedBytes = writeAll(target, values);
        const encoded = target.slice(0, encodedBytes);
        return [
          { name: `encode, ${name}`, callsPerRun: REPEAT, run: () => writeAll(target, values) },
          { name: `decode, ${name}`, callsPerRun: REPEAT, run: () => readAll(encoded) },
        ];
      }),
  });
}

function writeAll(target: Uint8Array, values: Int32Array): number {
  let position = 0;
  for (const value of values) position = writeVarint(target, position, value);
  return position;
}

function readAll(encoded: Uint8Array): number {
  const reader = new VarintReader(encoded);
  let sum = 0;
  while (reader.position < reader.end) sum ^= reader.readVarint();
  return sum;
}

function encodeWorkload(): Workload {
  const sizes = [
    { name: "100 B", valueBytes: 100 },
    { name: "1 KiB", valueBytes: 1024 },
  ];
  return microWorkload({
    name: "batch encode",
    explanation: "One record of a batch, its part of header and CRC included.",
    subjects: sizes.flatMap(({ name }) => [`${name} records, batch of 128 KiB`, `${name} records, batch of one`]),
    prepare: () =>
      sizes.flatMap(({ name, valueBytes }): MicroSubject[] => {
        const many = records(filledBatch(valueBytes, BATCH_BYTES).recordsCount, valueBytes);
        const one = many.slice(0, 1);
        return [
          {
            name: `${name} records, batch of 128 KiB`,
            callsPerRun: many.length,
            run: () => encodeBatch(many).length,
          },
          { name: `${name} records, batch of one`, callsPerRun: 1, run: () => encodeBatch(one).length },
        ];
      }),
  });
}

function scanWorkload(): Workload {
  return microWorkload({
    name: "batch scan",
    explanation: "The header of one batch, read and checked; no CRC.",
    subjects: ["scanBatch", "readBatchHeader"],
    prepare: () => {
      const batch = filledBatch(100, 4096).bytes;
      // Each has a loop of its own: a shared one would be compiled for both, and call what it times through a variable.
      return [
        {
          name: "scanBatch",
          callsPerRun: REPEAT,
          run: () => {
            let sum = 0;
            for (let call = 0; call < REPEAT; call += 1) {
              const found = scanBatch(batch, 0);
              if (found.type === "batch") sum += found.header.recordsCount;
            }
            return sum;
          },
        },
        {
          name: "readBatchHeader",
          callsPerRun: REPEAT,
          run: () => {
            let sum = 0;
            for (let call = 0; call < REPEAT; call += 1) {
              const found = readBatchHeader(batch, 0);
              if (found.type === "batch") sum += found.header.recordsCount;
            }
            return sum;
          },
        },
      ];
    },
  });
}

function epochWorkload(): Workload {
  const counts = [10, 1000];
  const offsetsPerEpoch = 1000;
  return microWorkload({
    name: "epoch cache",
    explanation: "One lookup in a leader epoch cache of so many entries, for epochs and offsets all over it.",
    subjects: counts.flatMap((count) => [`endOffsetFor, ${count} entries`, `epochForOffset, ${count} entries`]),
    prepare: () =>
      counts.flatMap((count): MicroSubject[] => {
        const cache = new LeaderEpochCache(
          Array.from({ length: count }, (_, epoch) => ({
            epoch: toLeaderEpoch(epoch),
            startOffset: toOffset(epoch * offsetsPerEpoch),
          })),
        );
        const endOffset = toOffset(count * offsetsPerEpoch);
        const epochs = spread(count);
        const offsets = spread(endOffset).map((offset) => toOffset(offset));
        return [
          {
            name: `endOffsetFor, ${count} entries`,
            callsPerRun: REPEAT,
            run: () => {
              let sum = 0;
              for (const epoch of epochs) sum += cache.endOffsetFor(epoch, endOffset).endOffset;
              return sum;
            },
          },
          {
            name: `epochForOffset, ${count} entries`,
            callsPerRun: REPEAT,
            run: () => {
              let sum = 0;
              for (const offset of offsets) sum += cache.epochForOffset(offset) ?? 0;
              return sum;
            },
          },
        ];
      }),
  });
}

function offsetIndexWorkload(): Workload {
  const counts = [1000, 1_000_000];
  const name = (count: number) => `lookup, ${count.toLocaleString("en-US")} entries`;
  const offsetsPerEntry = 40;
  return microWorkload({
    name: "offset index",
    explanation: "One lookup in an offset index of so many entries, for offsets all over it.",
    subjects: counts.map(name),
    prepare: () =>
      counts.map((count): MicroSubject => {
        const index = new OffsetIndex(toOffset(0));
        for (let entry = 0; entry < count; entry += 1) index.append((entry + 1) * offsetsPerEntry, entry * 1000);
        const offsets = spread(count * offsetsPerEntry);
        return {
          name: name(count),
          callsPerRun: REPEAT,
          run: () => {
            let sum = 0;
            for (const offset of offsets) sum += index.lookup(offset);
            return sum;
          },
        };
      }),
  });
}

/** `REPEAT` whole numbers in `[0, below)`, in no order that a processor could guess. */
function spread(below: number): number[] {
  return Array.from({ length: REPEAT }, (_, at) => (Math.imul(at, 2_654_435_761) >>> 0) % below);
}
