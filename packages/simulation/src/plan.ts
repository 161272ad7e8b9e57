import type { LogConfig } from "@tidemark/log";
import { LOSS_RULES, SimulatedRandom } from "@tidemark/simulator";
import type { ClusterOptions, Loss } from "./cluster.ts";
import type { ProducerOptions } from "./client.ts";

/** Whom a fault hits: whoever leads when it comes, or this broker. */
export type Target = "leader" | number;

export type Fault = { readonly atMs: number; readonly target: Target } & (
  | { readonly type: "kill"; readonly isTold: boolean; readonly restartAfterMs: number }
  | { readonly type: "powerCut"; readonly loss: Loss; readonly isTold: boolean; readonly restartAfterMs: number }
  | { readonly type: "shutDown"; readonly restartAfterMs: number }
  | { readonly type: "pause"; readonly durationMs: number }
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
      readonly fate:
        | { readonly type: "kill"; readonly isTold: boolean; readonly restartAfterMs: number }
        | { readonly type: "pause"; readonly durationMs: number };
      readonly releasedAfterMs: number;
    }
);

/** Everything that a seed decides up front. */
export interface Plan {
  readonly cluster: ClusterOptions;
  readonly durationMs: number;
  readonly hasMessageFaults: boolean;
  readonly producers: readonly ProducerOptions[];
  readonly faults: readonly Fault[];
}

const FAULT_TYPES = [
  "kill",
  "powerCut",
  "shutDown",
  "pause",
  "holdBack",
  "cutOff",
  "killController",
  "strand",
  "pauseController",
] as const;
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
  const durationMs = 10_000 + below("duration", 30_000);
  const brokers = pick("brokers", [3, 3, 3, 2, 4, 5]);
  const log: Partial<LogConfig> = {
    flush: pick("flush", ["none", "none", "always"]),
    segmentBytes: pick("segment", [1024, 4096, 1024 ** 2]),
    indexIntervalBytes: pick("index", [1, 512, 4096]),
    maxMessageBytes: 1000,
  };
  const cluster: ClusterOptions = {
    seed,
    brokers,
    log,
    minInsyncReplicas: pick("min-isr", [2, 2, 2, 1]),
    replicaLagTimeMaxMs: pick("lag", [500, 2000, 10_000]),
    sessionTimeoutMs: pick("session", [3000, 9000]),
    manager: {
      fetchMaxWaitMs: pick("wait", [50, 500]),
      fetchMinBytes: 1,
      fetchPartitionMaxBytes: pick("fetch-bytes", [1100, 4096, 1024 ** 2]),
      fetchBackoffMs: pick("fetch-back-off", [20, 200, 1000]),
      requestTimeoutMs: pick("time-out", [500, 2000]),
      clusterStateWaitMs: pick("state-wait", [200, 2000]),
      flushIntervalMs: pick("flush-interval", [undefined, undefined, 1000]),
      highWatermarkCheckpointMs: pick("checkpoint", [100, 5000]),
    },
  };
  const producers: ProducerOptions[] = [];
  for (let id = 1; id <= 1 + below("producers", 3); id += 1) {
    producers.push({
      id,
      acks: id === 1 ? -1 : pick(`acks${id}`, [-1, 1]),
      recordsMax: 1 + below(`records${id}`, 5),
      valueBytesMax: 1 + below(`bytes${id}`, 100),
      timeoutMs: 200 + below(`time-out${id}`, 2000),
      pauseMsMax: below(`pause${id}`, 300),
      isNameless: id > 1 && below(`nameless${id}`, 4) === 0,
      triesMax: id === 1 ? 0 : pick(`tries${id}`, [0, 0, 1, 3]),
    });
  }
  return {
    cluster,
    durationMs,
    hasMessageFaults: below("messages", 2) === 1,
    producers,
    faults: drawFaults(below, durationMs, brokers),
  };
}

function drawFaults(below: (site: string, bound: number) => number, durationMs: number, brokers: number): Fault[] {
  const weights = FAULT_TYPES.map((type) => (below(`${type}.on`, 2) === 0 ? 0 : 1 + below(`${type}.weight`, 10)));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  if (total === 0) return [];
  const count = 1 + below("faults", 25);
  // In bursts or spread: a restart that meets the next fault is another history than one that is done with.
  const faults = Array.from({ length: count }, (_, index): Fault => {
    const site = `fault${index}`;
    let drawn = below(`${site}.type`, total);
    const type = FAULT_TYPES.find((_type, at) => (drawn -= weights[at] ?? 0) < 0) ?? "kill";
    const target = below(`${site}.leader`, 2) === 0 ? "leader" : 1 + below(`${site}.target`, brokers);
    const common = { atMs: 500 + below(`${site}.at`, durationMs), target } as const;
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
      default:
        return type satisfies never;
    }
  });
  return faults.toSorted((first, second) => first.atMs - second.atMs);
}
