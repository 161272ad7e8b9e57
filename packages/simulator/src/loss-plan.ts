import { fail } from "@tidemark/base";
import type { LossRule, ResolvedLimits } from "./loss-rule.ts";
import type { FileContent } from "./file-content.ts";
import { mix32 } from "./hash.ts";
import type { CrashPoint } from "./operation-log.ts";
import { isDataOperation } from "./operation.ts";
import type { CommitOperation, DataOperation, Inode, NameOperation, PendingOperation } from "./operation.ts";
import { SimulatedRandom } from "./random.ts";
import type { Volume } from "./volume.ts";

/** The outcomes of one crash: a vector of choices, position i in [0, radices[i]), gives one volume. Choice 0 loses the most. */
export interface LossPlan {
  readonly radices: readonly number[];
  build(choices: readonly number[]): Volume;
}

type Applicable = DataOperation | NameOperation | CommitOperation;

export function planLoss(point: CrashPoint, rule: LossRule, limits: ResolvedLimits): LossPlan {
  switch (rule) {
    case "ordered-prefix":
      return {
        radices: [point.pending.length + 1],
        build: ([count]) => applied(point, point.pending.slice(0, count)),
      };
    case "per-file-prefix":
      return planPrefixes(point);
    case "any-subset":
      return planSubset(
        point,
        point.pending.filter((operation) => operation.type !== "commit").map((operation) => [[], [operation]]),
      );
    case "block-subset":
      return planSubset(point, blockUnits(point, limits));
    case "torn-write":
      return planTornWrite(point, limits);
    case "size-before-data":
      return planSizeBeforeData(point);
    case "missing-directory-entry":
      return planMissingEntries(point);
    default:
      return fail("every loss rule is handled", { rule: rule satisfies never });
  }
}

function planPrefixes(point: CrashPoint): LossPlan {
  const groups: PendingOperation[][] = [...dataGroups(point).values(), ...nameGroups(point)];
  return withCommits(
    point,
    groups.map((group) => group.length + 1),
    (choices) => applied(point, groups.flatMap((group, index) => group.slice(0, choices[index])).sort(byNumber)),
  );
}

/** Each unit offers alternatives; the chosen ones apply in order. */
function planSubset(point: CrashPoint, units: readonly (readonly (readonly Applicable[])[])[]): LossPlan {
  return withCommits(
    point,
    units.map((alternatives) => alternatives.length),
    (choices) =>
      applied(
        point,
        units.flatMap((alternatives, index) => alternatives[choices[index] ?? 0] ?? []),
      ),
  );
}

/** A unit for each sector that a write touches, and for each other operation. */
function blockUnits(point: CrashPoint, limits: ResolvedLimits): (readonly (readonly Applicable[])[])[] {
  const units: (readonly (readonly Applicable[])[])[] = [];
  for (const operation of point.pending) {
    if (operation.type === "commit") continue;
    if (operation.type !== "write") {
      units.push([[], [operation]]);
      continue;
    }
    const { inode, positionBytes, bytes } = operation;
    const endBytes = positionBytes + bytes.length;
    for (let from = positionBytes; from < endBytes;) {
      const to = Math.min(endBytes, (Math.floor(from / limits.sectorBytes) + 1) * limits.sectorBytes);
      const part = bytes.subarray(from - positionBytes, to - positionBytes);
      const alternatives: Applicable[][] = [[], [{ type: "write", inode, positionBytes: from, bytes: part }]];
      if (limits.sectorDamage !== "none" && part.length > 1) {
        const seed = mix32(operation.number ^ mix32(from ^ limits.seed));
        const damaged = damage(part, seed, limits.sectorDamage);
        alternatives.splice(1, 0, [{ type: "write", inode, positionBytes: from, bytes: damaged }]);
      }
      units.push(alternatives);
      from = to;
    }
  }
  return units;
}

/** A good left part, alone or with garbage behind it. */
function damage(sector: Uint8Array, seed: number, kind: "torn" | "garbage"): Uint8Array {
  const random = new SimulatedRandom(seed);
  const goodBytes = 1 + random.below("damage", sector.length - 1);
  if (kind === "torn") return sector.subarray(0, goodBytes);
  const damaged = sector.slice();
  damaged.set(random.bytes("damage", sector.length - goodBytes), goodBytes);
  return damaged;
}

function planTornWrite(point: CrashPoint, limits: ResolvedLimits): LossPlan {
  const torn = point.pending.at(-1);
  if (torn === undefined || torn.type !== "write" || torn.number !== point.last?.number || torn.bytes.length < 2) {
    return { radices: [], build: () => applied(point, point.pending) };
  }
  const others = point.pending.slice(0, -1);
  const cuts = tornCuts(torn, limits);
  const tear = (variant: { keepsOthers: boolean; fillsUp: boolean; cut: number }): Volume => {
    // Without its name the file of the torn write would not be seen: names survive with it.
    const volume = applied(point, variant.keepsOthers ? others : others.filter((operation) => isName(operation)));
    const bytes = torn.bytes.subarray(0, cuts[variant.cut]);
    volume.apply({ ...torn, bytes });
    const endBytes = torn.positionBytes + torn.bytes.length;
    if (variant.fillsUp && volume.content(torn.inode).sizeBytes < endBytes) {
      volume.apply({ type: "truncate", inode: torn.inode, sizeBytes: endBytes });
    }
    return volume;
  };
  if (limits.tornVariants === "short") {
    return { radices: [cuts.length], build: ([cut = 0]) => tear({ keepsOthers: true, fillsUp: false, cut }) };
  }
  return {
    radices: [2, 2, cuts.length],
    build: ([keepsOthers, fillsUp, cut = 0]) => tear({ keepsOthers: keepsOthers === 1, fillsUp: fillsUp === 1, cut }),
  };
}

/** Lengths of the surviving part, each in [1, length of the write). */
function tornCuts(
  torn: { readonly number: number; readonly bytes: Uint8Array },
  limits: ResolvedLimits,
): readonly number[] {
  const lengthBytes = torn.bytes.length;
  if (lengthBytes - 1 <= limits.tornCutsMax) return Array.from({ length: lengthBytes - 1 }, (_, index) => index + 1);
  const cuts = new Set<number>([1, lengthBytes - 1]);
  for (const border of limits.tornBorders) if (border >= 1 && border < lengthBytes) cuts.add(border);
  const random = new SimulatedRandom(limits.seed);
  for (let drawn = cuts.size; drawn < limits.tornCutsMax; drawn++) {
    cuts.add(1 + random.below(`torn/${torn.number}`, lengthBytes - 1));
  }
  return [...cuts].sort((a, b) => a - b);
}

function planSizeBeforeData(point: CrashPoint): LossPlan {
  const groups = [...dataGroups(point)];
  const names = point.pending.filter(isName);
  // The choice of a file is a pair (data prefix, size prefix), the second at least the first.
  const pairs = groups.map(([, group]) => prefixPairs(group.length));
  return withCommits(point, [...pairs.map((pair) => pair.length), names.length === 0 ? 1 : 2], (choices) => {
    const volume = applied(point, choices[groups.length] === 1 ? names : []);
    for (const [index, [inode, group]] of groups.entries()) {
      const [dataCount, sizeCount] = pairs[index]?.[choices[index] ?? 0] ?? [0, 0];
      volume.setContent(inode, contentWithZeros(volume.content(inode), group, dataCount, sizeCount));
    }
    return volume;
  });
}

function prefixPairs(length: number): readonly (readonly [number, number])[] {
  const pairs: [number, number][] = [];
  for (let data = 0; data <= length; data++) for (let size = data; size <= length; size++) pairs.push([data, size]);
  return pairs;
}

function contentWithZeros(
  durable: FileContent,
  group: readonly (DataOperation & PendingOperation)[],
  dataCount: number,
  sizeCount: number,
): FileContent {
  let content = durable;
  let sizeBytes = durable.sizeBytes;
  for (const [index, operation] of group.slice(0, sizeCount).entries()) {
    if (operation.type === "truncate") sizeBytes = operation.sizeBytes;
    else sizeBytes = Math.max(sizeBytes, operation.positionBytes + operation.bytes.length);
    if (index >= dataCount) continue;
    if (operation.type === "truncate") content = content.truncate(operation.sizeBytes);
    else content = content.write(operation.bytes, operation.positionBytes);
  }
  return content.truncate(sizeBytes);
}

function planMissingEntries(point: CrashPoint): LossPlan {
  const data = point.pending.filter((operation) => isDataOperation(operation));
  const names = point.pending.filter(isName);
  return withCommits(
    point,
    names.map(() => 2),
    (choices) => applied(point, [...data, ...names.filter((_, index) => choices[index] === 1)]),
  );
}

/** Adds the choice of a prefix of the pending State commits. */
function withCommits(
  point: CrashPoint,
  radices: readonly number[],
  build: (choices: readonly number[]) => Volume,
): LossPlan {
  const commits = point.pending.filter((operation) => operation.type === "commit");
  return {
    radices: [...radices, commits.length + 1],
    build: (choices) => {
      const volume = build(choices);
      for (const commit of commits.slice(0, choices[radices.length])) volume.apply(commit);
      return volume;
    },
  };
}

function applied(point: CrashPoint, operations: readonly Applicable[]): Volume {
  const volume = point.durable.clone();
  for (const operation of operations) volume.apply(operation);
  return volume;
}

function dataGroups(point: CrashPoint): Map<Inode, (DataOperation & PendingOperation)[]> {
  const groups = new Map<Inode, (DataOperation & PendingOperation)[]>();
  for (const operation of point.pending) {
    if (!isDataOperation(operation)) continue;
    const group = groups.get(operation.inode);
    if (group === undefined) groups.set(operation.inode, [operation]);
    else group.push(operation);
  }
  return groups;
}

function nameGroups(point: CrashPoint): (NameOperation & PendingOperation)[][] {
  const groups = new Map<Inode, (NameOperation & PendingOperation)[]>();
  for (const operation of point.pending) {
    if (!isName(operation)) continue;
    const group = groups.get(operation.directory);
    if (group === undefined) groups.set(operation.directory, [operation]);
    else group.push(operation);
  }
  return [...groups.values()];
}

function isName(operation: PendingOperation): operation is NameOperation & PendingOperation {
  return !isDataOperation(operation) && operation.type !== "commit";
}

function byNumber(a: PendingOperation, b: PendingOperation): number {
  return a.number - b.number;
}
