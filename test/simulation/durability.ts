import type { FlushMode } from "@tidemark/log";
import { LOSS_RULES, SimulatedRandom } from "@tidemark/simulator";
import { PeerError } from "@tidemark/wire";
import { Cluster, NAME, recordsOf, textBatch } from "@tidemark/simulation";
import type { Loss, Node } from "@tidemark/simulation";

/** How often a log is made durable: never of its own accord, every second, before an append is answered. */
export type Flush = "none" | "interval" | "always";

export interface Mode {
  readonly title: string;
  readonly acks: -1 | 1;
  readonly flush: Flush;
}

/** Columns of the table. */
export const MODES = [
  { title: "`acks=1`, `none`", acks: 1, flush: "none" },
  { title: "`acks=1`, 1 s", acks: 1, flush: "interval" },
  { title: "`acks=1`, `always`", acks: 1, flush: "always" },
  { title: "`acks=all`, `none`", acks: -1, flush: "none" },
  { title: "`acks=all`, 1 s", acks: -1, flush: "interval" },
  { title: "`acks=all`, `always`", acks: -1, flush: "always" },
] as const satisfies readonly Mode[];

/** What becomes of acknowledged records. `byHand`: nobody leads afterwards until an operator names the leader. */
export type Cell = "kept" | "kept, by hand" | "may be lost" | "may be lost, by hand";

export interface Failure {
  readonly title: string;
  /** In the order of `MODES`. */
  readonly cells: readonly [Cell, Cell, Cell, Cell, Cell, Cell];
  /** Makes the failure happen, more than once if it may. Anybody may be down when it returns. */
  readonly strike: (scene: Scene) => Promise<void>;
}

const ONLY_WITH_ALL = ["may be lost", "may be lost", "may be lost", "kept", "kept", "kept"] as const;

/** Of the brokers; the spaces between power cuts of one row are twice that. */
const FLUSH_INTERVAL_MS = 1000;
const SESSION_TIMEOUT_MS = 2000;
const BROKERS = [1, 2, 3];

/**
 * Three brokers, `min.insync.replicas` 2: what an acknowledged record survives. The README's table is made of this, and each cell is
 * proven: where it says "kept", histories of many seeds lose nothing; where it says "may be lost", one does lose something.
 */
export const FAILURES: readonly Failure[] = [
  {
    title: "the leader's process is killed",
    cells: ONLY_WITH_ALL,
    strike: async (scene) => {
      for (let turn = 0; turn < 3; turn += 1) {
        await scene.wait(300, 1500);
        await scene.maybeStrand();
        await scene.kill(scene.leader);
        scene.restartLater(scene.leader, 2000);
        await scene.wait(100, 500);
        scene.release();
      }
    },
  },
  {
    title: "any number of processes are killed, one after another or all at once",
    cells: ONLY_WITH_ALL,
    strike: async (scene) => {
      const atOnce = scene.isLikely("at-once");
      await scene.wait(300, 1500);
      await scene.maybeStrand();
      for (const brokerId of scene.inAnyOrder()) {
        await scene.kill(brokerId);
        if (!atOnce) await scene.wait(0, 600);
      }
      await scene.wait(0, 500);
      scene.release();
      for (const brokerId of scene.inAnyOrder()) scene.restartLater(brokerId, 1500);
      await scene.wait(1500, 2500);
    },
  },
  {
    title: "one machine loses power while another in-sync replica lives",
    cells: ONLY_WITH_ALL,
    strike: async (scene) => {
      for (let turn = 0; turn < 2; turn += 1) {
        await scene.whenInSync();
        await scene.wait(100, 1000);
        await scene.maybeStrand();
        const brokerId = scene.isLikely("leader") ? scene.leader : scene.anybody();
        await scene.powerCut(brokerId);
        scene.restartLater(brokerId, 2000);
        await scene.wait(100, 500);
        scene.release();
      }
    },
  },
  {
    title: "machines lose power one after another, 2 s or more apart, though none of them is back in sync",
    cells: [
      "may be lost, by hand",
      "may be lost, by hand",
      "may be lost",
      "may be lost, by hand",
      "kept, by hand",
      "kept",
    ],
    strike: async (scene) => {
      await scene.wait(300, 1500);
      await scene.maybeStrand();
      const back = scene.isLikely("back");
      for (const brokerId of [scene.leader, ...scene.inAnyOrder().filter((other) => other !== scene.leader)]) {
        await scene.powerCut(brokerId);
        if (back) scene.restartLater(brokerId, 5000);
        await scene.wait(100, 200);
        scene.release();
        await scene.wait(2 * FLUSH_INTERVAL_MS, 3000);
      }
    },
  },
  {
    title: "all machines lose power at once",
    cells: [
      "may be lost, by hand",
      "may be lost, by hand",
      "may be lost",
      "may be lost, by hand",
      "may be lost, by hand",
      "kept",
    ],
    strike: async (scene) => {
      await scene.wait(300, 2500);
      await Promise.all(scene.inAnyOrder().map((brokerId) => scene.powerCut(brokerId)));
      await scene.wait(0, 1000);
    },
  },
  {
    title: "a sync fails on one machine, and its process is started again",
    cells: ONLY_WITH_ALL,
    strike: async (scene) => {
      for (let turn = 0; turn < 2; turn += 1) {
        await scene.whenInSync();
        await scene.maybeStrand();
        const brokerId = scene.isLikely("leader") ? scene.leader : scene.anybody();
        await scene.failSync(brokerId);
        await scene.kill(brokerId);
        scene.restartLater(brokerId, 2000);
        await scene.wait(100, 500);
        scene.release();
      }
    },
  },
  {
    title: "a leader that was stopped wakes up, and does not know that another leads",
    cells: ONLY_WITH_ALL,
    strike: async (scene) => {
      await scene.wait(300, 1500);
      await scene.maybeStrand();
      const zombie = scene.leader;
      scene.cluster.pause(zombie);
      await scene.wait(100, 500);
      scene.release();
      await scene.wait(SESSION_TIMEOUT_MS, 2 * SESSION_TIMEOUT_MS);
      scene.cluster.resume(zombie);
      await scene.wait(500, 1500);
    },
  },
];

/** The table of the README. */
export function renderDurability(): string {
  const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  return [
    row(["failure", ...MODES.map(({ title }) => title)]),
    `|${"---|".repeat(1 + MODES.length)}`,
    ...FAILURES.map(({ title, cells }) => row([title, ...cells.map((cell) => cell.replace(", by hand", " ¹"))])),
  ].join("\n");
}

/** What became of one history. */
export interface DurabilityReport {
  readonly acknowledged: number;
  /** Acknowledged records that are not where they were acknowledged. */
  readonly lost: readonly string[];
  /** Records that are in the log twice. */
  readonly doubled: readonly string[];
  /** Times that an operator named the leader. */
  readonly electionsByHand: number;
  /** The replicas' files are the same, byte for byte. */
  readonly isSame: boolean;
}

/** One history of the failure. @throws Error when the replicas do not agree in the end */
export async function runDurability(seed: number, failure: Failure, mode: Mode): Promise<DurabilityReport> {
  const flush: FlushMode = mode.flush === "always" ? "always" : "none";
  const cluster = new Cluster({
    seed,
    log: { flush, segmentBytes: 4096, maxMessageBytes: 1000 },
    sessionTimeoutMs: SESSION_TIMEOUT_MS,
    replicaLagTimeMaxMs: 2000,
    manager: {
      requestTimeoutMs: 500,
      clusterStateWaitMs: 500,
      fetchMaxWaitMs: 100,
      flushIntervalMs: mode.flush === "interval" ? FLUSH_INTERVAL_MS : undefined,
    },
  });
  return cluster.run(async () => {
    await cluster.startAll();
    const scene = new Scene(cluster, seed);
    const writers = [1, 2].map((id) => new Writer(cluster, id, mode.acks));
    const writing = writers.map((writer) => writer.run());
    await failure.strike(scene);
    const elected = await scene.repair();
    for (const writer of writers) writer.stop();
    await Promise.all(writing);
    await cluster.converged();
    return { ...(await verdict(cluster, writers)), electionsByHand: elected() };
  });
}

async function verdict(
  cluster: Cluster,
  writers: readonly Writer[],
): Promise<Omit<DurabilityReport, "electionsByHand">> {
  const logs: string[] = [];
  for (const { log, environment } of cluster.nodes.values()) {
    const files = environment.files.image().files();
    const segments = [...files].filter(([path]) => path.startsWith(`/${log?.directory}/`) && path.endsWith(".log"));
    logs.push(JSON.stringify(segments.map(([path, bytes]) => [path, Buffer.from(bytes).toString("base64")])));
  }
  const { log } = cluster.node(cluster.leader() ?? 1);
  const stored = new Set(log === undefined ? [] : await recordsOf(log));
  const values = [...stored].map((record) => record.slice(record.indexOf(":") + 1));
  const acknowledged = writers.flatMap((writer) => writer.acknowledged);
  return {
    acknowledged: acknowledged.length,
    lost: acknowledged.filter((record) => !stored.has(record)),
    doubled: values.filter((value, index) => values.indexOf(value) !== index),
    isSame: logs.length === BROKERS.length && logs.every((bytes) => bytes === logs[0]),
  };
}

/** The hand that makes a failure, with all its choices drawn from the seed. */
export class Scene {
  readonly cluster: Cluster;
  readonly #random: SimulatedRandom;
  #isOver = false;

  constructor(cluster: Cluster, seed: number) {
    this.cluster = cluster;
    this.#random = new SimulatedRandom(seed * 17);
  }

  /** Who leads, or would. */
  get leader(): number {
    const leader = this.cluster.decided?.leader ?? -1;
    return leader >= 0 ? leader : (this.cluster.decided?.isr[0] ?? 1);
  }

  isLikely(site: string): boolean {
    return this.#random.below(site, 2) === 0;
  }

  anybody(): number {
    return 1 + this.#random.below("anybody", BROKERS.length);
  }

  inAnyOrder(): readonly number[] {
    return BROKERS.map((brokerId) => ({ brokerId, at: this.#random.below("order", 1000) }))
      .toSorted((first, second) => first.at - second.at)
      .map(({ brokerId }) => brokerId);
  }

  wait(fromMs: number, toMs: number): Promise<void> {
    return this.cluster.wait(fromMs + this.#random.below("wait", toMs - fromMs));
  }

  whenInSync(): Promise<void> {
    return this.cluster.until("all are in sync", () => {
      return this.cluster.leader() !== undefined && this.cluster.decided?.isr.length === BROKERS.length;
    });
  }

  /** In half of the histories the leader takes records for a while that nobody else has. */
  async maybeStrand(): Promise<void> {
    if (!this.isLikely("strand")) return;
    for (const { brokerId, manager } of this.cluster.nodes.values())
      if (brokerId !== this.leader) manager?.pauseFetching();
    await this.wait(150, 500);
  }

  release(): void {
    for (const { manager } of this.cluster.nodes.values()) manager?.resumeFetching();
  }

  async kill(brokerId: number): Promise<void> {
    if (this.cluster.node(brokerId).isRunning)
      await this.cluster.kill(brokerId, { isTold: this.#random.below("told", 3) > 0 });
  }

  async powerCut(brokerId: number): Promise<void> {
    const rule = this.#random.below("loss", 1 + LOSS_RULES.length);
    const loss: Loss = LOSS_RULES[rule] ?? "all";
    await this.cluster.powerCut(brokerId, loss, { isTold: this.#random.below("told", 3) > 0 });
  }

  /** The next sync of the broker's log fails, be it by a roll, a flush, or of an append. */
  async failSync(brokerId: number): Promise<void> {
    const { files } = this.cluster.node(brokerId).environment;
    const pages = (["new", "old", "dirty"] as const)[this.#random.below("pages", 3)] ?? "new";
    const fault = files.inject({ operation: "sync", path: /\.log$/u, code: "EIO", pages });
    await this.wait(100, 500);
    // Without followers no more is written.
    if (fault.hits === 0) this.release();
    await this.cluster.until("a sync has failed", () => fault.hits > 0);
    await this.wait(0, 1500);
  }

  restartLater(brokerId: number, withinMs: number): void {
    const afterMs = this.#random.below("restart", withinMs);
    this.cluster.kernel.schedule(afterMs * 1000, "test.restart", () => {
      if (!this.#isOver) void this.cluster.start(brokerId);
    });
  }

  /** Everything is started again, and an operator looks after it. @returns how often he had to, as of the call */
  async repair(): Promise<() => number> {
    const { cluster } = this;
    this.#isOver = true;
    for (const node of cluster.nodes.values()) {
      node.manager?.resumeFetching();
      if (!node.isRunning) await cluster.start(node.brokerId);
    }
    let elections = 0;
    const operate = async (): Promise<void> => {
      for (;;) {
        await cluster.wait(500);
        if (!isStuck(cluster)) continue;
        elections += 1;
        await cluster.controller?.electUncleanly(NAME, longestOf(cluster));
      }
    };
    void operate();
    return () => elections;
  }
}

/** The controller trusts nobody any more: whoever was in the ISR may have lost the end of its log. */
function isStuck({ decided, nodes }: Cluster): boolean {
  return decided?.leader === -1 && decided.isr.length === 0 && [...nodes.values()].every(({ partition }) => partition);
}

/** The latest epoch, and of those the longest log: it holds all that was committed and is still there, since nobody here fell out before. */
function longestOf({ nodes }: Cluster): number {
  const latest = ({ log }: Node): number => log?.epochEntries.at(-1)?.epoch ?? -1;
  const end = ({ log }: Node): number => log?.logEndOffset ?? 0;
  const [best] = [...nodes.values()].toSorted(
    (first, second) => latest(second) - latest(first) || end(second) - end(first),
  );
  return best?.brokerId ?? -1;
}

/** An idempotent producer that remembers what it was told. */
class Writer {
  /** `offset:value` of every acknowledged record. */
  readonly acknowledged: string[] = [];
  readonly #cluster: Cluster;
  readonly #acks: -1 | 1;
  readonly #id: number;
  #producerId: number;
  #sequence = 0;
  #leader = 1;
  #isStopped = false;

  constructor(cluster: Cluster, id: number, acks: -1 | 1) {
    this.#cluster = cluster;
    this.#id = id;
    this.#acks = acks;
    this.#producerId = id * 1000;
  }

  /** Returns when it was stopped and its last record is acknowledged. */
  async run(): Promise<void> {
    for (let written = 0; !this.#isStopped; written += 1) {
      const value = `${this.#id}-${written}`;
      for (;;) {
        const offset = await this.#attempt(value);
        if (offset !== undefined) this.acknowledged.push(`${offset}:${value}`);
        await this.#cluster.wait(20);
        if (offset !== undefined) break;
      }
      this.#sequence += 1;
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  async #attempt(value: string): Promise<number | undefined> {
    const batch = textBatch([value], { id: this.#producerId, sequence: this.#sequence });
    try {
      const answer = await this.#cluster.send(this.#leader, batch, { acks: this.#acks, timeoutMs: 500 });
      if (answer.error === "NONE") return answer.baseOffset;
      if (answer.error === "OUT_OF_ORDER_SEQUENCE_NUMBER") {
        // What it was told is gone: it goes on as another.
        this.#producerId += 1;
        this.#sequence = 0;
      }
      this.#leader = answer.leaderId >= 1 ? answer.leaderId : this.#next();
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      this.#leader = this.#next();
    }
    return undefined;
  }

  #next(): number {
    return (this.#leader % BROKERS.length) + 1;
  }
}
