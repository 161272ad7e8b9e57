import { readFile } from "node:fs/promises";

import { toOffset } from "@tidemark/base";
import type { PartitionLog } from "@tidemark/log";
import { NODE_JOBS } from "@tidemark/runtime-node";
import {
  decodeRecords,
  decompressBatchNow,
  endTransactionMarkerOf,
  isControlBatch,
  isLogAppendTime,
  isTransactional,
} from "@tidemark/wire";

import { headerOf } from "./batches.ts";

// What a client is told of a partition: by Kafka's broker, in the lines of Clients.java, and by our log, in the same lines.

const ISOLATIONS = ["read_uncommitted", "read_committed"] as const;
type Isolation = (typeof ISOLATIONS)[number];

const FETCH_BYTES = 30_000;
const OUTPUT_BYTES_MAX = 64 * 1024 ** 2;

/** One line of Clients.java: a record, a listed offset or a producer. */
export interface ViewLine {
  readonly kind: "record" | "offset" | "producer";
  readonly topic: string;
  readonly isolation?: Isolation;
  /** Of a listed offset: a name, or a time in ms. */
  readonly spec?: string;
  readonly epoch?: number | undefined;
}

/** What Clients.java wrote. */
export async function readView(path: string): Promise<ViewLine[]> {
  const text = await readFile(path, "utf8");
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as ViewLine);
}

/** What our log tells of the same: records and producers, and the offsets for the specs that `asked` has. */
export async function viewOf(log: PartitionLog, asked: readonly ViewLine[]): Promise<ViewLine[]> {
  const lines: ViewLine[] = [];
  for (const isolation of ISOLATIONS) {
    lines.push(...(await recordsOf(log, isolation)));
    for (const line of asked)
      if (line.kind === "offset" && line.topic === log.topic && line.isolation === isolation)
        lines.push(await listed(log, line));
  }
  for (const [producerId, entry] of [...log.producers].sort(([a], [b]) => a - b)) {
    const producer = {
      kind: "producer",
      topic: log.topic,
      producerId,
      epoch: entry.producerEpoch,
      lastSequence: entry.batches.at(-1)?.lastSequence ?? -1,
      lastTimestamp: entry.lastTimestamp,
      coordinatorEpoch: entry.coordinatorEpoch,
      transactionStart: entry.transactionFirstOffset ?? -1,
    } as const;
    lines.push(producer);
  }
  return lines;
}

/** As a consumer reads: control batches are passed over, and with `read_committed` the records of aborted transactions. */
async function recordsOf(log: PartitionLog, isolation: Isolation): Promise<ViewLine[]> {
  const lines: ViewLine[] = [];
  for (let fromOffset: number = log.logStartOffset; ;) {
    const options = { fromOffset: toOffset(fromOffset), maxBytes: FETCH_BYTES, isolation };
    const { bytes, abortedTransactions = [] } = await log.read(options);
    if (bytes.length === 0) return lines;
    const pending = [...abortedTransactions].sort((a, b) => a.firstOffset - b.firstOffset);
    const aborting = new Set<number>();
    const startOffset = fromOffset;
    for (let at = 0; isWhole(bytes, at);) {
      const header = headerOf(bytes, at);
      at += header.sizeInBytes;
      fromOffset = header.lastOffset + 1;
      while ((pending[0]?.firstOffset ?? Number.POSITIVE_INFINITY) <= header.lastOffset)
        aborting.add(pending.shift()?.producerId ?? -1);
      if (isControlBatch(header)) {
        if (endTransactionMarkerOf(bytes, header)?.type === "abort") aborting.delete(header.producerId);
        continue;
      }
      if (isTransactional(header) && aborting.has(header.producerId)) continue;
      const payload = decompressBatchNow(NODE_JOBS, bytes, header, OUTPUT_BYTES_MAX);
      for (const { offset, timestamp, key, value, headers } of decodeRecords(header, payload)) {
        if (offset < startOffset) continue;
        const record = {
          kind: "record",
          isolation,
          topic: log.topic,
          offset,
          timestamp,
          type: isLogAppendTime(header) ? "LogAppendTime" : "CreateTime",
          epoch: header.partitionLeaderEpoch,
          key: base64(key),
          value: base64(value),
          headers: headers.map((each) => [each.key, base64(each.value)]),
        } as const;
        lines.push(record);
      }
    }
  }
}

async function listed(log: PartitionLog, line: ViewLine): Promise<ViewLine> {
  const { isolation, spec = "" } = line;
  const limit = isolation === "read_committed" ? log.lastStableOffset(log.logEndOffset) : log.logEndOffset;
  const named = spec === "earliest" || spec === "latest" || spec === "max-timestamp";
  const found = await log.listOffset(named ? spec : { timestamp: Number(spec) }, limit);
  const { kind, topic } = line;
  const answer = {
    offset: found?.offset ?? -1,
    timestamp: found?.timestamp ?? -1,
    epoch: found?.leaderEpoch ?? -1,
  };
  return { kind, ...(isolation === undefined ? {} : { isolation }), topic, spec, ...answer };
}

function isWhole(bytes: Uint8Array, at: number): boolean {
  if (at + 12 > bytes.length) return false;
  return at + 12 + new DataView(bytes.buffer, bytes.byteOffset).getInt32(at + 8) <= bytes.length;
}

function base64(bytes: Uint8Array | null): string | null {
  return bytes === null ? null : Buffer.from(bytes).toString("base64");
}
