import { decodeUtf8, toOffset } from "@tidemark/base";
import { enumerateCrashImages, SimulatedDisk } from "@tidemark/simulator";
import type { DiskImage } from "@tidemark/simulator";
import { checkCrc, decodeRecords, encodeBatch, recordsSection, scanBatch } from "@tidemark/wire";
import { append, CONFIG, DATA, lead, ManagerFixture } from "./log-manager.fixture.ts";
import type { PartitionLog } from "./partition-log.ts";
import { repairDirectory } from "./repair.ts";
import type { RepairReport } from "./repair.ts";

export const BATCH_BYTES = encodeBatch([{ key: null, value: new Uint8Array(3), timestamp: 1 }]).length;
export const PER_SEGMENT = 4;
/** Three full segments, and one of two records. */
export const RECORDS = 3 * PER_SEGMENT + 2;

export const segmentPath = (segment: number): string =>
  `${DATA}/orders-0/${String(segment * PER_SEGMENT).padStart(20, "0")}.log`;

export async function filled(): Promise<ManagerFixture> {
  const fixture = new ManagerFixture();
  const manager = await fixture.open();
  await manager.createTopic("orders", 1, { ...CONFIG, segmentBytes: PER_SEGMENT * BATCH_BYTES });
  const log = await lead(manager, "orders");
  for (let record = 0; record < RECORDS; record += 1) await append(log, `v${String(record).padStart(2, "0")}`);
  await manager.close();
  return fixture;
}

export async function overwrite(
  fixture: ManagerFixture,
  path: string,
  at: number,
  bytes: readonly number[],
): Promise<void> {
  const file = await fixture.files.open(path, "write");
  await file.writeAt(Uint8Array.from(bytes), at);
  await file.sync();
  await file.close();
}

export async function cut(fixture: ManagerFixture, path: string, sizeBytes: number): Promise<void> {
  const file = await fixture.files.open(path, "write");
  await file.truncate(sizeBytes);
  await file.sync();
  await file.close();
}

export async function remove(fixture: ManagerFixture, path: string): Promise<void> {
  await fixture.files.unlink(path);
  await fixture.files.syncDirectory(`${DATA}/orders-0`);
}

export const repair = (fixture: ManagerFixture, acceptsLoss: boolean): Promise<RepairReport> =>
  repairDirectory({
    environment: fixture.environment,
    openState: () => Promise.resolve(fixture.state),
    directory: DATA,
    acceptsLoss,
  });

export const lostIn = (report: RepairReport): string[] =>
  report.partitions.flatMap(({ lost }) => lost.map(({ fromOffset, toOffset: end }) => `${fromOffset}..${end - 1}`));

export async function offsetsOf(log: PartitionLog): Promise<number[]> {
  const offsets: number[] = [];
  for (let next: number = log.logStartOffset; next < log.logEndOffset;) {
    const { bytes } = await log.read({ fromOffset: toOffset(next), maxBytes: 1 });
    if (bytes.length === 0) break;
    const scan = scanBatch(bytes, 0);
    if (scan.type !== "batch" || !checkCrc(bytes, scan.header)) throw new Error(`no batch at ${next}`);
    for (const { offset, value } of decodeRecords(scan.header, recordsSection(bytes, scan.header))) {
      offsets.push(offset);
      const text = value === null ? "" : decodeUtf8(value);
      if (text.startsWith("v") && text !== `v${String(offset).padStart(2, "0")}`) throw new Error(`${offset}: ${text}`);
    }
    next = scan.header.lastOffset + 1;
  }
  return offsets;
}

/** All offsets but some. */
export const without = (...gone: readonly number[]): number[] =>
  Array.from({ length: RECORDS }, (_, offset) => offset).filter((offset) => !gone.includes(offset));

/** Lost by the damage that `exploreRepair` begins with. */
const LOST = [1, 4, 5, 6, 7, 13];

/**
 * A repair of a damaged log, stopped by a crash after each operation, with every loss of what was not synced: what is left opens, has lost no
 * more, and the next repair goes on.
 * @returns disks that were opened, and those that were not repaired yet
 * @throws Error for the first that is otherwise
 */
export async function exploreRepair(): Promise<{ readonly images: number; readonly unrepaired: number }> {
  const fixture = await filled();
  await overwrite(fixture, segmentPath(0), BATCH_BYTES + 8, [0x7f]);
  await overwrite(fixture, segmentPath(1), 0, Array(PER_SEGMENT * BATCH_BYTES).fill(0));
  await cut(fixture, segmentPath(3), BATCH_BYTES + 1);
  const from = fixture.files.operationCount;
  await repair(fixture, true);
  const images = new Map<string, DiskImage>();
  for (const point of [...fixture.files.crashPoints()].filter(({ number }) => number >= from))
    for (const rule of ["ordered-prefix", "per-file-prefix", "block-subset", "missing-directory-entry"] as const)
      for (const image of enumerateCrashImages(point, rule, { outcomesMax: 8 })) images.set(image.digest, image);
  let unrepaired = 0;
  for (const image of images.values()) if (await checkRepairAfter(image)) unrepaired += 1;
  return { images: images.size, unrepaired };
}

/** @returns whether something was left to repair */
async function checkRepairAfter(image: DiskImage): Promise<boolean> {
  const after = new ManagerFixture(SimulatedDisk.fromImage(image));
  // An open in between changes nothing of it: what is not given up yet is damage, and no more than that.
  const opened = await after.open();
  const log = opened.partition("orders", 0);
  demand(log?.logEndOffset === RECORDS, `the log ends at ${log?.logEndOffset}`);
  for (const { fromOffset, toOffset: end } of log?.damaged ?? [])
    for (let offset: number = fromOffset; offset < end; offset += 1)
      demand(LOST.includes(offset), `offset ${offset} is damaged as well`);
  await opened.close();
  const lost = lostIn(await repair(after, true));
  const manager = await after.open();
  const leading = await lead(manager, "orders");
  await append(leading, "new");
  const found = (await offsetsOf(leading)).join(" ");
  demand(found === [...without(...LOST), RECORDS].join(" "), `the repaired log has ${found}`);
  demand((await manager.close()).isClean, "the repaired log does not close");
  return lost.length > 0;
}

function demand(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what);
}
