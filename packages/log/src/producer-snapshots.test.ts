import { joinPath, toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import type { SimulatedDisk } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { PRODUCER_SNAPSHOT_SUFFIX, segmentFileName } from "./file-names.ts";
import { encodeProducerSnapshot } from "./producer-snapshot.ts";
import { ProducerSnapshots } from "./producer-snapshots.ts";
import { ProducerState } from "./producer-state.ts";

const DIRECTORY = "orders-0";
const nameOf = (offset: number): string => segmentFileName(toOffset(offset), PRODUCER_SNAPSHOT_SUFFIX);

async function directoryWith(...offsets: readonly number[]): Promise<SimulatedDisk> {
  const { files } = new SimulatedEnvironment({ seed: 1 });
  await files.makeDirectory(DIRECTORY);
  for (const offset of offsets) {
    const file = await files.open(joinPath(DIRECTORY, nameOf(offset)), "create");
    await file.writeAt(encodeProducerSnapshot(new ProducerState().entries), 0);
    await file.close();
  }
  return files;
}

test.each([
  ["between others", 12, [5, 9, 12]],
  ["that is there already", 9, [5, 9]],
  ["below all", 2, [2]],
  ["above all", 30, [5, 9, 20, 25, 30]],
])(
  "a snapshot %s: those above it, of a log that was longer, are gone before it is there, and the newest is it",
  async (_name, offset, left) => {
    const files = await directoryWith(5, 9, 20, 25);
    const snapshots = new ProducerSnapshots(files, DIRECTORY, await files.list(DIRECTORY));
    const from = files.operationCount;
    await snapshots.write(toOffset(offset), new ProducerState(), true);
    expect(snapshots.offsets).toEqual(left);
    expect((await files.list(DIRECTORY)).toSorted()).toEqual(left.map(nameOf));
    expect((await snapshots.load(toOffset(100)))?.offset).toBe(left.at(-1));
    const changes = files.history.filter(({ number }) => number >= from).map(({ type }) => type);
    const removals = 4 + (left.includes(offset) && ![5, 9, 20, 25].includes(offset) ? 1 : 0) - left.length;
    expect(changes.length > removals).toBe(![5, 9, 20, 25].includes(offset));
    expect(changes.slice(0, removals)).toEqual(Array.from({ length: removals }, () => "unlink"));
  },
);
