import { fail, toOffset } from "@tidemark/base";
import { verifyDirectory } from "@tidemark/log";
import type { PartitionLog } from "@tidemark/log";
import { SimulatedDisk, SimulatedEnvironment } from "@tidemark/simulator";
import type { SimulatedRandom } from "@tidemark/simulator";
import { scanBatch } from "@tidemark/wire";
import type { BatchHeader } from "@tidemark/wire";
import { Violation } from "./checker.ts";
import type { Cluster, Node } from "./cluster.ts";

/** Offsets and times that are looked up in each log. */
const LOOKUPS = 12;
const SLICE_BYTES = 1 << 16;

/**
 * Looks at each broker that is at rest from three sides: its files as `tidemark verify` reads them, its log as it answers look-ups, and
 * what it knows of its producers as its batches tell it.
 * @throws Violation S26, S27
 */
export async function checkFinalFiles(cluster: Cluster, random: SimulatedRandom): Promise<void> {
  for (const node of cluster.nodes.values()) {
    await checkFiles(node);
    const { log } = node;
    if (log === undefined) continue;
    const [first] = log.epochEntries;
    if (first !== undefined && first.startOffset < log.logStartOffset)
      throw new Violation(
        "S26",
        `broker ${node.brokerId}: its epochs begin at ${first.startOffset}, its log at ${log.logStartOffset}`,
      );
    const headers = await headersOf(log);
    await checkLookups(node, log, headers, random);
    checkProducers(node, log, headers);
  }
}

/** On a copy of the disk: that takes no time, and disturbs nobody. */
async function checkFiles({ brokerId, environment }: Node): Promise<void> {
  const files = SimulatedDisk.fromImage(environment.files.image());
  const { state, workers } = new SimulatedEnvironment({ seed: 0 }, files);
  const { errors } = await verifyDirectory({ files, workers, state, directory: "log", isInUse: true });
  const [first] = errors;
  if (first !== undefined)
    throw new Violation("S26", `broker ${brokerId}: ${first.path}: ${first.detail} (${first.kind})`);
}

/** All of the log, through the reads that consumers use. */
async function headersOf(log: PartitionLog): Promise<readonly BatchHeader[]> {
  const headers: BatchHeader[] = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: SLICE_BYTES });
    const before = next;
    for (let at = 0; at < bytes.length;) {
      const scan = scanBatch(bytes, at);
      if (scan.type !== "batch") break;
      headers.push(scan.header);
      at += scan.header.sizeInBytes;
      next = scan.header.lastOffset + 1;
    }
    if (next === before) fail("a read brings a batch", { directory: log.directory, next });
  }
  return headers;
}

async function checkLookups(
  { brokerId }: Node,
  log: PartitionLog,
  headers: readonly BatchHeader[],
  random: SimulatedRandom,
): Promise<void> {
  for (let lookup = 0; lookup < LOOKUPS && headers.length > 0; lookup += 1) {
    const wanted = headers[random.below("lookup", headers.length)] ?? fail("there is a batch");
    const { logStartOffset } = log;
    const fromOffset = Math.max(wanted.baseOffset, logStartOffset);
    const offset = fromOffset + random.below("lookup.offset", wanted.lastOffset - fromOffset + 1);
    const { startOffset } = await log.read({ fromOffset: toOffset(offset), maxBytes: 1 });
    if (startOffset !== wanted.baseOffset)
      throw new Violation(
        "S26",
        `broker ${brokerId}: offset ${offset} is in ${wanted.baseOffset}, read is ${startOffset}`,
      );
    // All records of a batch have one time here.
    const timestamp = wanted.maxTimestamp + random.below("lookup.time", 2);
    const first = headers.find(({ maxTimestamp }) => maxTimestamp >= timestamp);
    const listed = await log.listOffset({ timestamp });
    // As in Kafka: when the first segment with such a time has it below the log start only, there is no answer.
    if (listed === undefined && (log.segments[0]?.baseOffset ?? 0) < logStartOffset) continue;
    const firstOffset = first === undefined ? undefined : Math.max(first.baseOffset, logStartOffset);
    if (listed?.offset !== firstOffset)
      throw new Violation(
        "S26",
        `broker ${brokerId}: time ${timestamp} begins at ${firstOffset}, told is ${listed?.offset}`,
      );
  }
}

/**
 * A log that forgot a producer's last batch takes it a second time, and one that remembers too much refuses what comes next. Of producers
 * whose batches were all deleted it may know or not.
 */
function checkProducers({ brokerId }: Node, log: PartitionLog, headers: readonly BatchHeader[]): void {
  const last = new Map<number, string>();
  for (const { producerId, producerEpoch, lastOffset } of headers)
    if (producerId >= 0 && lastOffset >= log.logStartOffset)
      last.set(producerId, `epoch ${producerEpoch}, last offset ${lastOffset}`);
  const endOffset = (headers.at(-1)?.lastOffset ?? -1) + 1;
  const known = new Map<number, string>();
  for (const [id, { producerEpoch, batches }] of log.producers) {
    const lastOffset = batches.at(-1)?.lastOffset ?? -1;
    // A request that the network said once more may have been carried out since the batches were read.
    if (lastOffset >= endOffset) last.delete(id);
    else if (lastOffset >= log.logStartOffset) known.set(id, `epoch ${producerEpoch}, last offset ${lastOffset}`);
  }
  for (const id of new Set([...last.keys(), ...known.keys()])) {
    if (last.get(id) !== known.get(id))
      throw new Violation("S27", `broker ${brokerId}: producer ${id} has ${last.get(id)}, known is ${known.get(id)}`);
  }
}
