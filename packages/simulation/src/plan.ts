import { DEFAULT_LOG_CONFIG } from "@tidemark/log";
import type { LogConfig } from "@tidemark/log";
import { LOSS_RULES, SimulatedRandom } from "@tidemark/simulator";
import type { ClusterOptions, Loss } from "./cluster.ts";
import type { ProducerOptions } from "./client.ts";
import type { Phase } from "./pace.ts";

/** Whom a fault hits: whoever leads when it comes, or this broker. */
export type Target = "leader" | number;

/** How a leader goes in a fault of several steps. */
export type Fate =
  | { readonly type: "kill"; readonly isTold: boolean; readonly restartAfterMs: number }
  | { readonly type: "pause"; readonly durationMs: number }
  /** Declared dead while it lives, and out of the controller's reach for a while, if not for 0 ms. */
  | { readonly type: "depose"; readonly durationMs: number };

/** One leader of a leapfrog: some of its followers stand still, then it goes. */
export interface Leap {
  /**
   * Who fetches nothing meanwhile: the one that will lead next, so that it has nothing of this epoch; all, so that nobody has; or these,
   * as bits by their id.
   */
  readonly held: "next" | "all" | number;
  readonly heldMs: number;
  /** Before it goes, its answers to fetches are kept back for so long; 0: not. They arrive under the next leader. */
  readonly answersLateMs: number;
  /** What it is asked for by its followers comes once more so much later, whoever leads then; 0: not. */
  readonly fetchesAgainMs: number;
  readonly fate: Fate;
}

export type Fault = { readonly atMs: number; readonly target: Target } & (
  | { readonly type: "kill"; readonly isTold: boolean; readonly restartAfterMs: number }
  | { readonly type: "powerCut"; readonly loss: Loss; readonly isTold: boolean; readonly restartAfterMs: number }
  | { readonly type: "shutDown"; readonly restartAfterMs: number }
  | { readonly type: "pause"; readonly durationMs: number }
  /** Declared dead while it lives, and out of the controller's reach for a while. */
  | { readonly type: "depose"; readonly durationMs: number }
  /** Follows, but fetches nothing. */
  | { readonly type: "holdBack"; readonly durationMs: number }
  /** From the others, the controller, or both; clients too. Both ways, or only what it sends, or hears. */
  | {
      readonly type: "cutOff";
      readonly durationMs: number;
      readonly from: "brokers" | "controller" | "all";
      readonly direction: "both" | "send" | "hear";
    }
  | { readonly type: "killController"; readonly restartAfterMs: number }
  | { readonly type: "pauseController"; readonly durationMs: number }
  /** A leader goes with records that nobody else has. */
  | {
      readonly type: "strand";
      readonly heldMs: number;
      readonly fate: Exclude<Fate, { readonly type: "depose" }>;
      readonly releasedAfterMs: number;
    }
  /** One leader after another goes, each with followers that have something else than the others: epochs that some never hear of. */
  | { readonly type: "leapfrog"; readonly leaps: readonly Leap[]; readonly releasedAfterMs: number }
  /** A machine loses its power, comes back, is slow to fetch, and what it asked for before comes once more. */
  | {
      readonly type: "echo";
      /** Its process is killed and started before, and what the leader then tells the controller of it comes after the restart. */
      readonly isJoining: boolean;
      readonly loss: Loss;
      readonly recordedMs: number;
      readonly restartAfterMs: number;
      readonly heldMs: number;
      /** Of what was recorded, after the restart. */
      readonly echoAfterMs: number;
    }
  /** Writes into the log fail for want of space, after a part of their bytes. */
  | { readonly type: "diskFull"; readonly durationMs: number }
  /** One of the next writes fails: its disk is broken to the broker, which is started anew after a while. */
  | { readonly type: "writeError"; readonly skip: number; readonly part: DiskPart; readonly restartAfterMs: number }
  /** As `writeError`, of a sync: what it was for is read as it was before (`old`), or still waits for a sync. */
  | {
      readonly type: "syncError";
      readonly skip: number;
      readonly part: DiskPart;
      readonly pages: "old" | "dirty";
      readonly restartAfterMs: number;
    }
  /** As `writeError`, of a read. */
  | { readonly type: "readError"; readonly skip: number; readonly part: DiskPart; readonly restartAfterMs: number }
  /** Its process may open no more files. */
  | { readonly type: "noHandles"; readonly durationMs: number }
  | { readonly type: "slowDisk"; readonly durationMs: number; readonly extraMsMax: number }
  /** The wall clock of its machine, either way. */
  | { readonly type: "clockJump"; readonly deltaMs: number }
  /** No fault: if it leads, or believes so, somebody has so many hundredths of what is committed deleted from the begin of its log. */
  | { readonly type: "deleteRecords"; readonly share: number }
);

/** Which files a disk error strikes. */
export type DiskPart = "log" | "any";

/**
 * What stays for ever: its process dead or stopped; follows, but fetches nothing; cut off, from clients too or not; nothing that it says
 * arrives, or nothing arrives at it.
 */
export type FrozenFault = "dead" | "paused" | "heldBack" | "cutOff" | "exiled" | "mute" | "deaf";

/** Whom the end of the faults does not heal, as far as the others can do without. */
export interface LivenessPlan {
  readonly frozen: readonly { readonly brokerId: number; readonly fault: FrozenFault }[];
}

/** Everything that a seed decides up front. */
export interface Plan {
  readonly cluster: ClusterOptions;
  readonly durationMs: number;
  /** One after another from the start on; when they are over there is load. */
  readonly phases: readonly Phase[];
  readonly hasMessageFaults: boolean;
  readonly producers: readonly ProducerOptions[];
  readonly faults: readonly Fault[];
  /** `undefined`: everything is healed in the end. */
  readonly liveness?: LivenessPlan;
}

export const FAULT_TYPES = [
  "kill",
  "powerCut",
  "shutDown",
  "pause",
  "holdBack",
  "cutOff",
  "killController",
  "strand",
  "pauseController",
  "depose",
  "leapfrog",
  "echo",
  "diskFull",
  "writeError",
  "syncError",
  "slowDisk",
  "clockJump",
] as const;
const FROZEN_FAULTS: readonly FrozenFault[] = ["dead", "paused", "heldBack", "cutOff", "exiled", "mute", "deaf"];
/** All jumps of a run together stay below the day after which a log forgets a producer. */
const CLOCK_JUMP_MS_MAX = 600_000;
/** All that a seed appends fits. */
const SEGMENT_BYTES_LARGE = 1024 ** 2;
/** Some segments, where they are small. */
const RETENTION_BYTES = 12_000;
/** Deletions of records in a seed that has them, which is one in so many. */
const DELETIONS_MAX = 20;
const DELETIONS_SHARE = 3;
/** Reads that fail, and files that cannot be opened, in a seed that has them, which is one in so many. */
const READ_FAULTS_MAX = 12;
const READ_FAULTS_SHARE = 3;
/** One in so many seeds. */
const LIVENESS_SHARE = 4;
/** One in so many seeds ends with leapfrogs that no other fault meets. */
const DUELS_SHARE = 3;
const DUELS_MAX = 5;
const DUEL_QUIET_MS = 16_000;
const DUEL_BUSY_MS = 5_000;
/** Fetches that wait for records have been answered by then. */
const DUEL_HELD_BEFORE_MS = 700;
/** Before that: who led is back in the ISR by then, and hardly a batch has come. */
const DUEL_ELECTED_BEFORE_MS = 1_500;
const LOSSES: readonly Loss[] = ["all", "all", ...LOSS_RULES];

/**
 * Draws a run by the swarm rule: each class of faults is off with a chance of one half, and has a weight of its own otherwise. With
 * everything on in each run the faults would hide each other.
 */
export function planOf(seed: number): Plan {
  const random = new SimulatedRandom(seed);
  const below = (site: string, bound: number): number => random.below(`plan.${site}`, bound);
  const pick = <Value>(site: string, values: readonly [Value, ...Value[]]): Value =>
    values[below(site, values.length)] ?? values[0];
  const phases = drawPhases(below);
  const brokers = pick("brokers", [3, 3, 3, 2, 4, 5]);
  const duels = drawDuels(below, lengthOf(phases), brokers);
  const log: Partial<LogConfig> = {
    flush: pick("flush", ["none", "none", "always"]),
    // So little is behind as a rule that appends wait for flushes.
    flushBytes: pick("flush-bytes", [DEFAULT_LOG_CONFIG.flushBytes, 512, 4096]),
    segmentBytes: pick("segment", [1024, 4096, SEGMENT_BYTES_LARGE]),
    retentionBytes: pick("retention", [-1, -1, -1, RETENTION_BYTES]),
    indexIntervalBytes: pick("index", [1, 512, 4096]),
    maxMessageBytes: 1000,
  };
  const cluster: ClusterOptions = {
    seed,
    brokers,
    log,
    shortTransferOneIn: pick("short", [0, 10]),
    minInsyncReplicas: pick("min-isr", [2, 2, 2, 1]),
    replicaLagTimeMaxMs: pick("lag", [500, 2000, 10_000]),
    sessionTimeoutMs: pick("session", [3000, 9000]),
    manager: {
      fetchMaxWaitMs: pick("wait", [100, 500, 500, 500, 500, 5000]),
      fetchMinBytes: 1,
      fetchPartitionMaxBytes: pick("fetch-bytes", [1100, 4096, 1024 ** 2]),
      fetchBackoffMs: pick("fetch-back-off", [20, 200, 200, 1000]),
      requestTimeoutMs: pick("time-out", [500, 2000]),
      clusterStateWaitMs: pick("state-wait", [400, 2000, 2000, 2000]),
      flushIntervalMs: pick("flush-interval", [undefined, undefined, 1000, 5000]),
      highWatermarkCheckpointMs: pick("checkpoint", [100, 5000, 5000, 5000]),
    },
  };
  const producers: ProducerOptions[] = [];
  const count = 1 + below("producers", 4);
  for (let id = 1; id <= count; id += 1) {
    const acks: -1 | 1 = id === 1 ? -1 : pick(`acks${id}`, [-1, 1]);
    const isNameless = id > 1 && below(`nameless${id}`, 4) === 0;
    const triesMax = id === 1 ? 0 : pick(`tries${id}`, [0, 0, 1, 3]);
    // A snapshot, in Kafka's format, names a producer's last batch alone; of the others a log that was opened or cut knows what its last
    // segments have. Where they are small a batch that is in the log, but was not acknowledged, would be out of order for ever.
    const isOrdered = acks === -1 && !isNameless && triesMax === 0 && log.segmentBytes === SEGMENT_BYTES_LARGE;
    producers.push({
      id,
      acks,
      recordsMax: 1 + below(`records${id}`, 5),
      valueBytesMax: 1 + below(`bytes${id}`, 100),
      timeoutMs: 200 + below(`time-out${id}`, 2000),
      pauseMsMax: 40 + below(`pause${id}`, 400),
      isNameless,
      triesMax,
      inFlightMax: isOrdered ? pick(`in-flight${id}`, [1, 2, 5]) : 1,
    });
  }
  return {
    cluster,
    durationMs: lengthOf([...phases, ...duels.phases]),
    phases: [...phases, ...duels.phases],
    hasMessageFaults: below("messages", 2) === 1,
    producers,
    faults: [drawFaults, drawDeletions, drawReadFaults]
      .flatMap((draw) => draw(below, phases, brokers))
      .concat(duels.faults)
      .toSorted((first, second) => first.atMs - second.atMs),
    ...(below("liveness", LIVENESS_SHARE) === 0 ? { liveness: drawFrozen(below, brokers) } : {}),
  };
}

/** Load, then quiet, some times; the last faults come under load. */
function drawPhases(below: (site: string, bound: number) => number): Phase[] {
  const phases: Phase[] = [];
  const rounds = 4 + below("rounds", 3);
  for (let round = 0; round < rounds; round += 1) {
    phases.push({ isQuiet: false, durationMs: 1_500 + below(`busy${round}`, 4_500) });
    phases.push({ isQuiet: true, durationMs: 80_000 + below(`quiet${round}`, 140_000) });
  }
  return [...phases, { isQuiet: false, durationMs: 5_000 }];
}

function lengthOf(phases: readonly Phase[]): number {
  return phases.reduce((sum, phase) => sum + phase.durationMs, 0);
}

/** Of ten faults, those that come in times of load. */
const BUSY_FAULTS = 6;

/** When a fault comes: anywhere in a time of its kind. */
function drawTime(below: (site: string, bound: number) => number, site: string, phases: readonly Phase[]): number {
  const isQuiet = below(`${site}.quiet`, 10) >= BUSY_FAULTS;
  const lengthMs = phases.reduce((sum, phase) => sum + (phase.isQuiet === isQuiet ? phase.durationMs : 0), 0);
  let leftMs = below(`${site}.at`, lengthMs);
  let atMs = 500;
  for (const phase of phases) {
    if (phase.isQuiet !== isQuiet) atMs += phase.durationMs;
    else if (leftMs < phase.durationMs) return atMs + leftMs;
    else {
      atMs += phase.durationMs;
      leftMs -= phase.durationMs;
    }
  }
  return atMs;
}

function drawFrozen(below: (site: string, bound: number) => number, brokers: number): LivenessPlan {
  const ids = Array.from({ length: brokers }, (_, index) => index + 1);
  const count = 1 + below("frozen", brokers - 1);
  const frozen = Array.from({ length: count }, (_, index) => ({
    brokerId: ids.splice(below(`frozen${index}`, ids.length), 1)[0] ?? 1,
    fault: FROZEN_FAULTS[below(`frozen${index}.fault`, FROZEN_FAULTS.length)] ?? "dead",
  }));
  return { frozen };
}

function drawFaults(
  below: (site: string, bound: number) => number,
  phases: readonly Phase[],
  brokers: number,
): Fault[] {
  const weights = FAULT_TYPES.map((type) => (below(`${type}.on`, 2) === 0 ? 0 : 1 + below(`${type}.weight`, 10)));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  if (total === 0) return [];
  const count = 42 + below("faults", 50);
  // In bursts or spread: a restart that meets the next fault is another history than one that is done with.
  return Array.from({ length: count }, (_, index): Fault => {
    const site = `fault${index}`;
    let drawn = below(`${site}.type`, total);
    const type = FAULT_TYPES.find((_type, at) => (drawn -= weights[at] ?? 0) < 0) ?? "kill";
    const target = below(`${site}.leader`, 2) === 0 ? "leader" : 1 + below(`${site}.target`, brokers);
    const common = { atMs: drawTime(below, site, phases), target } as const;
    const shortMs = below(`${site}.short`, 3000);
    const longMs = below(`${site}.long`, 15_000);
    const lastingMs = below(`${site}.is-long`, 4) === 0 ? longMs : shortMs;
    const isTold = below(`${site}.told`, 3) > 0;
    switch (type) {
      case "kill":
        return { ...common, type, isTold, restartAfterMs: lastingMs };
      case "powerCut":
        return {
          ...common,
          type,
          isTold,
          loss: LOSSES[below(`${site}.loss`, LOSSES.length)] ?? "all",
          restartAfterMs: lastingMs,
        };
      case "shutDown":
        return { ...common, type, restartAfterMs: lastingMs };
      case "pause":
      case "pauseController":
      case "depose":
      case "holdBack":
        return { ...common, type, durationMs: lastingMs };
      case "cutOff": {
        const from = (["brokers", "controller", "all"] as const)[below(`${site}.from`, 3)] ?? "all";
        const direction = (["both", "both", "send", "hear"] as const)[below(`${site}.direction`, 4)] ?? "both";
        return { ...common, type, durationMs: lastingMs, from, direction };
      }
      case "killController":
        return { ...common, type, restartAfterMs: shortMs };
      case "strand":
        return {
          ...common,
          type,
          target: "leader",
          heldMs: 50 + below(`${site}.held`, 1000),
          fate:
            below(`${site}.fate`, 4) === 0
              ? { type: "pause", durationMs: longMs }
              : { type: "kill", isTold, restartAfterMs: lastingMs },
          releasedAfterMs: below(`${site}.released`, 500),
        };
      case "leapfrog":
        return {
          ...common,
          type,
          target: "leader",
          leaps: drawLeaps((name, bound) => below(`${site}.${name}`, bound), brokers),
          releasedAfterMs: below(`${site}.released`, 500),
        };
      case "echo":
        return {
          ...common,
          type,
          loss: LOSSES[below(`${site}.loss`, LOSSES.length)] ?? "all",
          isJoining: below(`${site}.joining`, 2) === 1,
          recordedMs: 50 + below(`${site}.recorded`, 500),
          restartAfterMs: below(`${site}.is-slow`, 3) === 0 ? shortMs : below(`${site}.restart`, 100),
          heldMs: below(`${site}.held`, 1000),
          echoAfterMs: below(`${site}.echo`, 500),
        };
      case "diskFull":
        return { ...common, type, durationMs: lastingMs };
      case "writeError":
        return { ...common, type, ...drawDiskError((name, bound) => below(`${site}.${name}`, bound), lastingMs) };
      case "syncError": {
        const pages = below(`${site}.pages`, 2) === 0 ? "old" : "dirty";
        return {
          ...common,
          type,
          pages,
          ...drawDiskError((name, bound) => below(`${site}.${name}`, bound), lastingMs),
        };
      }
      case "slowDisk":
        return { ...common, type, durationMs: lastingMs, extraMsMax: 1 + below(`${site}.slow`, 300) };
      case "clockJump":
        return { ...common, type, deltaMs: below(`${site}.jump`, 2 * CLOCK_JUMP_MS_MAX) - CLOCK_JUMP_MS_MAX };
      default:
        return type satisfies never;
    }
  });
}

/** Now and then a few records, as an operator does, or half of all. */
function drawDeletions(
  below: (site: string, bound: number) => number,
  phases: readonly Phase[],
  brokers: number,
): Fault[] {
  if (below("deletions", DELETIONS_SHARE) > 0) return [];
  return Array.from({ length: 1 + below("deletions.count", DELETIONS_MAX) }, (_, index): Fault => {
    const site = `deletion${index}`;
    const target = below(`${site}.leader`, 4) > 0 ? "leader" : 1 + below(`${site}.target`, brokers);
    const share = below(`${site}.share`, below(`${site}.much`, 4) === 0 ? 101 : 20);
    return { atMs: drawTime(below, site, phases), target, type: "deleteRecords", share };
  });
}

function drawReadFaults(
  below: (site: string, bound: number) => number,
  phases: readonly Phase[],
  brokers: number,
): Fault[] {
  if (below("read-faults", READ_FAULTS_SHARE) > 0) return [];
  return Array.from({ length: 1 + below("read-faults.count", READ_FAULTS_MAX) }, (_, index): Fault => {
    const site = `read-fault${index}`;
    const target = below(`${site}.leader`, 2) === 0 ? "leader" : 1 + below(`${site}.target`, brokers);
    const common = { atMs: drawTime(below, site, phases), target } as const;
    const lastingMs = below(`${site}.lasts`, 4000);
    if (below(`${site}.type`, 2) === 0) return { ...common, type: "noHandles", durationMs: lastingMs };
    const error = drawDiskError((name, bound) => below(`${site}.${name}`, bound), lastingMs);
    return { ...common, type: "readError", ...error };
  });
}

/**
 * After all other faults, times of load with one leapfrog each: elsewhere others meet it before it is over. Mostly a leader is elected
 * while next to nothing is appended, so that the next one, held back from then on, is in the ISR and has nothing of its epoch, while the
 * one that leads after both has.
 */
function drawDuels(
  below: (site: string, bound: number) => number,
  fromMs: number,
  brokers: number,
): { readonly phases: readonly Phase[]; readonly faults: readonly Fault[] } {
  if (below("duels", DUELS_SHARE) > 0) return { phases: [], faults: [] };
  const rounds = Array.from({ length: 1 + below("duels.count", DUELS_MAX) }, (_, index): readonly Fault[] => {
    const draw = (name: string, bound: number): number => below(`duel${index}.${name}`, bound);
    const loadMs = fromMs + (index + 1) * DUEL_QUIET_MS + index * DUEL_BUSY_MS;
    const leaps = drawLeaps(draw, brokers);
    const leapfrog = { target: "leader", type: "leapfrog", leaps, releasedAfterMs: draw("released", 500) } as const;
    if (draw("is-elected", 3) === 0) return [{ ...leapfrog, atMs: loadMs + draw("after", 1000) }];
    const heldFromMs = loadMs - DUEL_HELD_BEFORE_MS;
    const restartAfterMs = draw("restart", 300);
    return [
      { atMs: heldFromMs - DUEL_ELECTED_BEFORE_MS, target: "leader", type: "kill", isTold: true, restartAfterMs },
      {
        ...leapfrog,
        atMs: heldFromMs,
        leaps: leaps.map((leap, at) => (at === 0 ? { ...leap, heldMs: leap.heldMs + DUEL_HELD_BEFORE_MS } : leap)),
      },
    ];
  });
  const phases = rounds.flatMap(() => [
    { isQuiet: true, durationMs: DUEL_QUIET_MS },
    { isQuiet: false, durationMs: DUEL_BUSY_MS },
  ]);
  return { phases, faults: rounds.flat() };
}

function drawDiskError(
  below: (name: string, bound: number) => number,
  restartAfterMs: number,
): { readonly skip: number; readonly part: DiskPart; readonly restartAfterMs: number } {
  return { skip: below("skip", 5), part: below("part", 2) === 0 ? "log" : "any", restartAfterMs };
}

function drawLeaps(below: (name: string, bound: number) => number, brokers: number): readonly Leap[] {
  const leap = (at: number, more: Partial<Leap>): Leap => ({
    held: 0,
    heldMs: 150 + below(`${at}.held-ms`, 450),
    answersLateMs: 0,
    fetchesAgainMs: 0,
    fate: { type: "kill", isTold: true, restartAfterMs: 500 + below(`${at}.restart`, 4000) },
    ...more,
  });
  const style = below("style", 3);
  // One leader or two whose epoch the next one has nothing of, one whose epoch nobody has: then they come back.
  if (style === 0) {
    const chain = [leap(0, { held: "next" }), leap(1, { held: "next" }), leap(2, { held: "all" }), leap(3, {})];
    return chain.slice(below("length", 2));
  }
  // A leader that is soon one again: what was told it in its first epoch, and comes again in its second, is not true any more.
  if (style === 1) {
    const deposed = leap(0, { held: "next", fate: { type: "depose", durationMs: 0 } });
    const last = 2 ** brokers;
    const between = leap(1, { held: below("lagging", 2) * last, heldMs: 50 + below("short", 400) });
    // They come when the leader has again as many records as they tell of, and its followers have not.
    const fetchesAgainMs = deposed.heldMs + between.heldMs + below("again", 300);
    return [{ ...deposed, fetchesAgainMs }, between, leap(2, { held: "all", heldMs: 1500 })];
  }
  return Array.from({ length: 2 + below("leaps", 3) }, (_leap, at) =>
    drawLeap((name, bound) => below(`${at}.${name}`, bound), brokers),
  );
}

function drawLeap(below: (name: string, bound: number) => number, brokers: number): Leap {
  // A leader that comes back in time may be the next one.
  const durationMs = below("back", below("is-slow", 3) === 0 ? 10_000 : 700);
  const fates: readonly [Fate, ...Fate[]] = [
    { type: "kill", isTold: true, restartAfterMs: durationMs },
    { type: "pause", durationMs },
    { type: "depose", durationMs },
  ];
  return {
    held: (["next", "all", below("held", 2 ** (brokers + 1))] as const)[below("holds", 3)] ?? "all",
    heldMs: 50 + below("held-ms", below("is-long", 2) === 0 ? 500 : 3000),
    answersLateMs: below("late", 2) === 0 ? 0 : 50 + below("late-ms", 1500),
    fetchesAgainMs: below("again", 2) === 0 ? 0 : 50 + below("again-ms", 5000),
    fate: fates[below("fate", fates.length)] ?? fates[0],
  };
}
