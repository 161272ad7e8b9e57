import { encodeUtf8, toLeaderEpoch } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { NODE_CODECS } from "@tidemark/codecs";
import { DEFAULT_LOG_CONFIG, LogDirectory, PartitionLog } from "@tidemark/log";
import { SimulatedEnvironment } from "@tidemark/simulator";
import {
  COMPRESSION_CODECS,
  compressPayload,
  encodeBatch,
  recordsSection,
  withCompressedPayload,
} from "@tidemark/wire";
import type { BatchOptions } from "@tidemark/wire";

import { headerOf } from "./batches.ts";
import { SeededRandom } from "./random.ts";

// Logs of ours that between them went through everything a log goes through, for Kafka to read.

const APPENDS = 160;
const TRANSACTIONS = 40;
const KEYED_BATCHES = 200;
const KEYS = 30;
const PRODUCER_ID = 9_000_000;
const CRASH_DIRECTORY = "data/our-crash-0";

/** Plain and idempotent batches of every codec in two leader epochs, rolls, and two cuts that are written over. */
export async function writeAppends(log: PartitionLog, timeMs: number): Promise<void> {
  const random = new SeededRandom(5);
  const ends: Offset[] = [];
  for (let number = 0; number < APPENDS; number += 1) {
    if (number === 0 || number === APPENDS / 2) await log.becomeLeader(toLeaderEpoch(number === 0 ? 0 : 1));
    const producer = number % 3 === 0 ? { producerId: PRODUCER_ID + number, producerEpoch: 0, baseSequence: 0 } : {};
    await log.append(batch(random, timeMs, producer), { origin: "client" });
    // At the end of a batch: a cut inside one leaves a hole behind the batch before, which is right, and which the dump tool tells of.
    if (number === 50 || number === 130) await log.truncateTo(ends.at(-random.between(5, 12)) ?? log.logStartOffset);
    ends.push(log.logEndOffset);
    if (number % 60 === 30) await log.roll();
  }
}

/** Two producers' transactions, committed and aborted, and one that stays open before others that end. */
export async function writeTransactions(log: PartitionLog, timeMs: number): Promise<void> {
  const random = new SeededRandom(6);
  await log.becomeLeader(toLeaderEpoch(0));
  const sequences = new Map<number, number>();
  const write = async (producerId: number): Promise<void> => {
    const baseSequence = sequences.get(producerId) ?? 0;
    const bytes = batch(random, timeMs, { producerId, producerEpoch: 0, baseSequence, transactional: true });
    sequences.set(producerId, baseSequence + headerOf(bytes).recordsCount);
    await log.append(bytes, { origin: "client", isTransactionVerified: true });
  };
  for (let number = 0; number < TRANSACTIONS; number += 1) {
    const producers = [PRODUCER_ID, PRODUCER_ID + 1];
    for (const producerId of producers) await write(producerId);
    if (number === TRANSACTIONS - 5) await write(PRODUCER_ID + 2);
    await write(PRODUCER_ID);
    for (const [at, producerId] of producers.entries()) {
      const type = (number + at) % 3 === 0 ? "abort" : "commit";
      await log.endTransaction({ type, producerId, producerEpoch: 0, coordinatorEpoch: 1, transactionVersion: 0 });
    }
  }
}

/** Keyed records and tombstones, with and without transactions, compacted twice. */
export async function writeCompacted(log: PartitionLog, timeMs: number): Promise<void> {
  const random = new SeededRandom(7);
  await log.becomeLeader(toLeaderEpoch(0));
  let sequence = 0;
  for (let number = 0; number < KEYED_BATCHES; number += 1) {
    const isTransaction = number % 4 === 0;
    const producer = { producerId: PRODUCER_ID, producerEpoch: 0, baseSequence: sequence, transactional: true };
    const bytes = batch(random, timeMs, isTransaction ? producer : {}, true);
    if (isTransaction) sequence += headerOf(bytes).recordsCount;
    await log.append(bytes, { origin: "client", isTransactionVerified: true });
    if (isTransaction) {
      const type = number % 3 === 0 ? "abort" : "commit";
      const { producerId, producerEpoch } = producer;
      await log.endTransaction({ type, producerId, producerEpoch, coordinatorEpoch: 1, transactionVersion: 0 });
    }
    if (number === KEYED_BATCHES / 2 || number === KEYED_BATCHES - 20) await log.compact();
  }
}

/** Goes on in a log of Kafka's, in its last leader epoch. */
export async function appendAsLeader(log: PartitionLog, timeMs: number): Promise<void> {
  const random = new SeededRandom(8);
  await log.becomeLeader(log.epochEntries.at(-1)?.epoch ?? toLeaderEpoch(0));
  let baseSequence = 0;
  for (let number = 0; number < 20; number += 1) {
    const isIdempotent = number % 2 === 0;
    const producer = isIdempotent ? { producerId: PRODUCER_ID + 10, producerEpoch: 0, baseSequence } : {};
    const bytes = batch(random, timeMs, producer, true);
    if (isIdempotent) baseSequence += headerOf(bytes).recordsCount;
    await log.append(bytes, { origin: "client" });
  }
}

/** Files of a log whose machine died with much of it unsynced, and that went on after recovery: by their names. */
export async function filesAfterCrash(timeMs: number): Promise<ReadonlyMap<string, Uint8Array>> {
  const random = new SeededRandom(9);
  let environment = new SimulatedEnvironment({ seed: 4 });
  await environment.files.makeDirectory(CRASH_DIRECTORY);
  await environment.files.syncDirectory("data");
  await environment.files.syncDirectory(".");
  for (const [epoch, isLast] of [
    [0, false],
    [1, true],
  ] as const) {
    const { files, clock, state, random: draws, workers } = environment;
    const log = await PartitionLog.open({
      files,
      clock,
      state,
      random: draws,
      workers,
      directory: CRASH_DIRECTORY,
      topic: "our-crash",
      partition: 0,
      config: {
        ...DEFAULT_LOG_CONFIG,
        segmentBytes: 20_000,
        indexIntervalBytes: 500,
        flush: "none",
        // The simulated clock is not of our days.
        timestampAfterMaxMs: Number.MAX_SAFE_INTEGER,
      },
      wasCleanShutdown: false,
      producerIdExpirationMs: Number.MAX_SAFE_INTEGER,
      logDirectory: new LogDirectory("data"),
    });
    await log.becomeLeader(toLeaderEpoch(epoch));
    for (let number = 0; number < APPENDS; number += 1) {
      await log.append(batch(random, timeMs), { origin: "local" });
      if (number === APPENDS / 2) await log.flush();
    }
    if (isLast) await log.close();
    else environment = environment.crashMachine("block-subset");
  }
  const found = new Map<string, Uint8Array>();
  for (const name of await environment.files.list(CRASH_DIRECTORY)) {
    const file = await environment.files.open(`${CRASH_DIRECTORY}/${name}`, "read");
    const bytes = new Uint8Array(await file.size());
    await file.readAt(bytes, 0);
    await file.close();
    found.set(name, bytes);
  }
  return found;
}

/** Records at times up to a second and a half after `timeMs`, each batch with another codec. */
function batch(random: SeededRandom, timeMs: number, options: BatchOptions = {}, isKeyed = false): Uint8Array {
  const records = Array.from({ length: random.between(2, 7) }, () => ({
    key: isKeyed || random.oneIn(2) ? encodeUtf8(`key-${random.between(0, KEYS)}`) : null,
    value: random.oneIn(6) ? null : random.bytes(random.between(0, 300)),
    headers: random.oneIn(4) ? [{ key: "source", value: random.oneIn(2) ? null : random.bytes(3) }] : [],
    timestamp: timeMs + random.between(0, 1500),
  }));
  const bytes = encodeBatch(records, options);
  const codec = COMPRESSION_CODECS[random.between(0, COMPRESSION_CODECS.length - 1)] ?? "none";
  if (codec === "none") return bytes;
  return withCompressedPayload(
    bytes,
    codec,
    compressPayload(NODE_CODECS, codec, recordsSection(bytes, headerOf(bytes))),
  );
}
