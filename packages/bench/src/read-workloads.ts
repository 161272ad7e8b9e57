import { filledBatch } from "./content.ts";
import { kafkaRead } from "./kafka-subjects.ts";
import { PEER_KINDS } from "./peer-kinds.ts";
import { peerGet, peerScan } from "./peer-subjects.ts";
import { rawRead } from "./raw-file-subjects.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import { fetchApi, pointFetches, pointReads, readSlices, storedBytes } from "./tidemark-subjects.ts";
import { peer } from "./workload.ts";
import type { Workload } from "./workload.ts";

const MEBIBYTE = 1024 ** 2;
const BATCH_BYTES = 128 * 1024;
const SMALL_BATCH_BYTES = 4096;
const RAW_MEBIBYTE = "raw file, 1 MiB";
const KAFKA = "Kafka's log class";

export function readWorkloads(): readonly Workload[] {
  return [fetchWorkload(), slicesWorkload(), pointsWorkload()];
}

function fetchWorkload(): Workload {
  const batch = filledBatch(100, BATCH_BYTES);
  return roundsWorkload({
    name: "fetch 100 B records",
    unit: "records/s",
    explanation:
      "All records of a partition in order, from memory (page cache), as objects; raw: only the bytes of as many.",
    subjects: [
      fetchApi(batch),
      kafkaRead({
        name: ", records",
        command: "scan",
        valueBytes: 100,
        batch,
        storedBytes: (quick) => storedBytes(batch, quick),
        toValue: (perSecond) => perSecond,
      }),
      ...PEER_KINDS.map((kind) => peerScan(kind, 100)),
      rawRead(RAW_MEBIBYTE, {
        batch,
        readBytes: MEBIBYTE,
        withFreshMemory: true,
        toValue: (budget, bytes) => budget.rate(bytes / batch.bytesPerRecord),
      }),
    ],
    peers: [peer("vs Kafka", `${KAFKA}, records`), peer("vs lmdb", "lmdb, all in order"), peer("vs raw", RAW_MEBIBYTE)],
    opensForEachSample: false,
  });
}

function slicesWorkload(): Workload {
  const batch = filledBatch(100, BATCH_BYTES);
  const raw = {
    batch,
    readBytes: MEBIBYTE,
    toValue: (budget: { megabytesPerSecond: (bytes: number) => number }, bytes: number) =>
      budget.megabytesPerSecond(bytes),
  };
  return roundsWorkload({
    name: "read 1 MiB slices",
    unit: "MB/s",
    explanation:
      "Whole batches as bytes, in order, from memory (page cache): what a follower fetches. Kafka reads into the same memory.",
    subjects: [
      readSlices(batch, MEBIBYTE, "fresh"),
      readSlices(batch, MEBIBYTE, "pooled"),
      kafkaRead({
        name: "",
        command: `slices ${MEBIBYTE}`,
        valueBytes: 100,
        batch,
        storedBytes: (quick) => storedBytes(batch, quick),
        toValue: (perSecond) => perSecond / 1e6,
      }),
      rawRead(RAW_MEBIBYTE, { ...raw, withFreshMemory: true }),
      rawRead("raw file, 1 MiB into the same memory", { ...raw, withFreshMemory: false }),
    ],
    peers: [
      peer("vs Kafka", KAFKA),
      {
        heading: "vs raw",
        subjectFor: (subject) =>
          subject.includes("the same memory") ? `${RAW_MEBIBYTE} into the same memory` : RAW_MEBIBYTE,
      },
    ],
    opensForEachSample: false,
  });
}

function pointsWorkload(): Workload {
  const batches = [
    { name: "4 KiB", bytes: SMALL_BATCH_BYTES },
    { name: "128 KiB", bytes: BATCH_BYTES },
  ];
  return roundsWorkload({
    name: "read one 100 B record by its offset",
    unit: "records/s",
    explanation:
      "One record after another, from all over the log, from memory (page cache). Where records lie in batches, a batch is read, " +
      "checked and decoded for each.",
    subjects: [
      ...batches.map(({ name, bytes }) => pointReads(name, filledBatch(100, bytes))),
      ...batches.map(({ name, bytes }) => pointFetches(name, bytes)),
      ...batches.map(({ name, bytes }) => {
        const batch = filledBatch(100, bytes);
        return kafkaRead({
          name: `, batches of ${name}`,
          command: "points",
          valueBytes: 100,
          batch,
          storedBytes: (quick) => storedBytes(batch, quick),
          toValue: (perSecond) => perSecond,
        });
      }),
      ...PEER_KINDS.map((kind) => peerGet(kind, 100)),
    ],
    peers: [
      {
        heading: "vs Kafka",
        subjectFor: (subject) => `${KAFKA}, batches of ${/128 KiB/u.test(subject) ? "128 KiB" : "4 KiB"}`,
      },
      peer("vs lmdb", "lmdb, get"),
    ],
    opensForEachSample: false,
  });
}
