import type { Timer } from "@tidemark/base";
import { drawMessageFaults, exponentialUs, QUIET } from "./message-network-faults.ts";
import type { SimulatedMessageNetwork } from "./message-network.ts";

const SECOND_US = 1_000_000;

/** A swarm under way. */
export interface MessageSwarm {
  /** Faults so far, by name. */
  readonly counts: ReadonlyMap<string, number>;
  /** Ends all faults: the network is whole and quiet from now on. */
  stop(): void;
}

type Pair = readonly [from: number, to: number];

/**
 * Draws the faults of one run from the network's seed and lets them loose: those of single messages by `drawMessageFaults`, and over time
 * partitions of every shape and clogs that come one by one and go in another order. Each class is off in half of the seeds.
 *
 * Partitions: one node alone, two sides, a bridge (two sides and one node that sees both), one pair; whole, or one way only, or of one kind of
 * message. They last one or two seconds at least, long enough for the protocol to notice.
 */
export function startMessageSwarm(network: SimulatedMessageNetwork): MessageSwarm {
  const { kernel, random } = network;
  const counts = new Map<string, number>();
  const timers = new Set<Timer>();
  const count = (name: string): void => void counts.set(name, (counts.get(name) ?? 0) + 1);
  const below = (name: string, bound: number): number => random.below(`swarm.${name}`, bound);
  const after = (delayUs: number, label: string, fire: () => void): void => {
    const timer = kernel.schedule(delayUs, label, () => {
      timers.delete(timer);
      fire();
    });
    timers.add(timer);
  };

  network.setFaults(drawMessageFaults(random));
  if (below("partition.on", 2) === 1) {
    const betweenUs = (2 + below("partition.between", 30)) * SECOND_US;
    const lengthUs = (1 + below("partition.length", 10)) * SECOND_US;
    const minimumUs = SECOND_US + below("partition.minimum", SECOND_US);
    const begin = (): void => {
      count(cutSome(network, below));
      const untilUs = minimumUs + exponentialUs(random.uint32("swarm.partition.end"), lengthUs);
      after(untilUs, "swarm.heal", () => {
        network.heal();
        after(exponentialUs(random.uint32("swarm.partition.begin"), betweenUs), "swarm.partition", begin);
      });
    };
    after(exponentialUs(random.uint32("swarm.partition.begin"), betweenUs), "swarm.partition", begin);
  }
  if (below("swizzle.on", 2) === 1) {
    const betweenUs = (5 + below("swizzle.between", 60)) * SECOND_US;
    const begin = (): void => {
      count("swizzle");
      swizzle(network, below, after);
      after(10 * SECOND_US + exponentialUs(random.uint32("swarm.swizzle.begin"), betweenUs), "swarm.swizzle", begin);
    };
    after(exponentialUs(random.uint32("swarm.swizzle.begin"), betweenUs), "swarm.swizzle", begin);
  }
  return {
    counts,
    stop: () => {
      for (const timer of timers) timer.cancel();
      network.setFaults(QUIET);
      network.heal();
      for (const [from, to] of allPairs(network.nodes)) network.unclog(from, to);
    },
  };
}

function cutSome(network: SimulatedMessageNetwork, below: (name: string, bound: number) => number): string {
  const { nodes } = network;
  const first = nodes[below("partition.node", nodes.length)] ?? 0;
  const second = nodes[below("partition.other", nodes.length)] ?? 0;
  const sides = new Map(nodes.map((node) => [node, below("partition.side", 2)]));
  const shapes: readonly (readonly [name: string, isApart: (pair: Pair) => boolean])[] = [
    ["isolated", ([from, to]) => from === first || to === first],
    ["sides", ([from, to]) => sides.get(from) !== sides.get(to)],
    ["bridge", ([from, to]) => sides.get(from) !== sides.get(to) && from !== first && to !== first],
    ["pair", ([from, to]) => (from === first && to === second) || (from === second && to === first)],
  ];
  const [name, isApart] = shapes[below("partition.shape", shapes.length)] ?? ["isolated", () => false];
  const direction = below("partition.direction", 4);
  const kinds = [undefined, undefined, "fetch", "produce", "alterPartition", "clusterState"] as const;
  const kind = kinds[below("partition.kind", kinds.length)];
  for (const [from, to] of allPairs(nodes).filter(isApart)) {
    // In half of them both ways; else the first node, or its side, only hears or only speaks.
    const isFromFirst = from === first || sides.get(from) === sides.get(first);
    if (direction === 2 && !isFromFirst) continue;
    if (direction === 3 && isFromFirst) continue;
    network.cut(from, to, kind);
  }
  return `${name}${direction < 2 ? "" : " one way"}${kind === undefined ? "" : " by kind"}`;
}

/** Stalls a random part of the links one by one over seconds, and lets them go in another order. From FoundationDB. */
function swizzle(
  network: SimulatedMessageNetwork,
  below: (name: string, bound: number) => number,
  after: (delayUs: number, label: string, fire: () => void) => void,
): void {
  for (const [from, to] of allPairs(network.nodes)) {
    if (below("swizzle.link", 2) === 0) continue;
    after(below("swizzle.clog", 5 * SECOND_US), "swarm.clog", () => network.clog(from, to));
    after(5 * SECOND_US + below("swizzle.unclog", 5 * SECOND_US), "swarm.unclog", () => network.unclog(from, to));
  }
}

function allPairs(nodes: readonly number[]): Pair[] {
  return nodes.flatMap((from) => nodes.filter((to) => to !== from).map((to): Pair => [from, to]));
}
