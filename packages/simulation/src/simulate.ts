import { decodeUtf8, toOffset } from "@tidemark/base";
import { LogError } from "@tidemark/log";
import { SimulatedRandom, startMessageSwarm } from "@tidemark/simulator";
import type { DiskFault } from "@tidemark/simulator";
import { Checker, Violation } from "./checker.ts";
import { Consumer, Producer } from "./client.ts";
import { ClientHistory } from "./client-history.ts";
import { Cluster, CONTROLLER_ID, NAME, recordsOf } from "./cluster.ts";
import type { Node } from "./cluster.ts";
import { checkFinalFiles } from "./final-files.ts";
import { checkFinalLog } from "./final-log.ts";
import { ExcusedStall, Liveness } from "./liveness.ts";
import type { Fault, Plan } from "./plan.ts";
import { Pace } from "./pace.ts";
import { planOf } from "./plan.ts";
import { EndAsker, Tail } from "./tail.ts";

/** What became of one seed. */
export interface SeedReport {
  readonly seed: number;
  /** `undefined`: nothing was wrong. */
  readonly failure: string | undefined;
  /** Over the order of all events. */
  readonly traceHash: number;
  /** Of the logs at the end, byte for byte. */
  readonly logDigests: readonly (number | undefined)[];
  readonly virtualMs: number;
  readonly events: number;
  readonly checks: number;
  /** Batches acknowledged by all, and requests sent for them. */
  readonly acknowledged: number;
  readonly sends: number;
  readonly reads: number;
  /** That clients began: sends of a batch, polls, questions for the end. */
  readonly operations: number;
  /** Machines that came back without the unsynced tail of what was committed while the controller held them for in sync. */
  readonly lostTailReturns: number;
  readonly truncations: number;
  readonly leaderEpochs: number;
  /** Faults by type; those that no protocol could survive are not made, and counted as skipped. */
  readonly faults: Readonly<Record<string, number>>;
}

/** Time that everything gets, once the faults are over, to come to rest. */
const CONVERGENCE_MS = 120_000;

/** A segment. */
const LOG_FILE = /\.log$/u;

/** A write leaves a part of its bytes, and has to be taken back. */
const DISK_FULL: DiskFault = {
  operation: "write",
  path: LOG_FILE,
  code: "ENOSPC",
  written: "part",
  count: Number.POSITIVE_INFINITY,
};

/** Of a replica that gave up for want of one. */
const NO_HANDLE = /"EMFILE"/u;
const NO_HANDLES: DiskFault = { operation: "open", code: "EMFILE", count: Number.POSITIVE_INFINITY };
const DISK_CALLS = { writeError: "write", readError: "read", syncError: "sync" } as const;

/** Where a broker notes the boot and the process in which its disk failed, for its next process (`ReplicaManager`). */
const FAILED_BOOT_KEY = "failed-boot";

/** Until it is looked again whether a broker with a broken disk may be started anew. */
const RESTART_AGAIN_MS = 500;

/** Time for an election, and for the news of it, in a cluster whose network is quiet. */
const ELECTED_MS = 30;

/** An append in a cluster at rest: some messages, some calls of a disk. */
const AT_ONCE_MS = 40;
const PROBES_AT_ONCE = 3;
/** Requests that the network doubled may come for a minute yet, and make the leader take a replica to be behind. */
const PROBES_MAX = 90;

/** What befalls single messages. */
const MESSAGE_FAULTS: ReadonlySet<string> = new Set(["dropped", "overflowed", "replayed", "corrupted"]);

/**
 * Runs the history of a seed. Never rejects.
 * @param watch is called before the first event, for whoever wants to look on
 */
export async function simulate(
  seed: number,
  plan: Plan = planOf(seed),
  watch?: (cluster: Cluster, checker: Checker) => void,
): Promise<SeedReport> {
  const run = new Run(plan);
  watch?.(run.cluster, run.checker);
  let failure: string | undefined;
  try {
    await run.cluster.run(() => run.body());
  } catch (error) {
    failure = error instanceof Violation ? error.message : String((error as Error).stack ?? error);
  }
  const { kernel, truncations } = run.cluster;
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  return {
    seed,
    failure,
    traceHash: kernel.traceHash,
    logDigests: run.checker.chains(),
    virtualMs: Math.floor(kernel.nowUs / 1000),
    events: kernel.eventCount,
    checks: run.checker.checks,
    acknowledged: sum(run.producers.map(({ acknowledged }) => acknowledged.length)),
    sends: sum(run.producers.map(({ sends }) => sends)),
    reads: run.consumer.reads,
    operations: run.history.operationCount,
    lostTailReturns: run.checker.lostTailReturns,
    truncations: truncations.length,
    leaderEpochs: run.leaderEpochs,
    faults: Object.fromEntries(run.counts),
  };
}

class Run {
  readonly cluster: Cluster;
  readonly checker: Checker;
  readonly history: ClientHistory;
  readonly pace: Pace;
  readonly producers: readonly Producer[];
  readonly consumer: Consumer;
  readonly tail: Tail;
  readonly endAsker: EndAsker;
  readonly counts = new Map<string, number>();
  leaderEpochs = 0;
  /** Undo the message faults of a fault that the end of faults came before. */
  readonly #undo: (() => void)[] = [];
  readonly #plan: Plan;
  #isOver = false;
  #isDone = false;
  /** While it lasts. */
  #liveness: Liveness | undefined;

  constructor(plan: Plan) {
    this.#plan = plan;
    this.cluster = new Cluster(plan.cluster);
    this.checker = new Checker(this.cluster);
    this.history = new ClientHistory({ mayReplay: plan.hasMessageFaults });
    this.pace = new Pace(this.cluster.kernel, plan.phases);
    const { cluster, checker, history, pace } = this;
    this.producers = plan.producers.map((options) => new Producer(cluster, checker, history, pace, options));
    this.consumer = new Consumer(cluster, checker, history, pace);
    this.tail = new Tail(cluster, history, pace, "tail");
    this.endAsker = new EndAsker(cluster, history, pace);
    if (plan.liveness !== undefined) this.#liveness = new Liveness(cluster, checker, history, plan.liveness);
  }

  async body(): Promise<void> {
    const { cluster, producers, consumer, tail, endAsker } = this;
    await cluster.startAll();
    this.pace.begin();
    const clients = Promise.all(producers.map((producer) => this.#guard(producer.run())));
    const reading = Promise.all([consumer.run(), tail.run(), endAsker.run()].map((client) => this.#guard(client)));
    const swarm = this.#plan.hasMessageFaults ? startMessageSwarm(cluster.network) : undefined;
    const before = cluster.network.onEvent;
    cluster.network.onEvent = (event, message) => {
      before?.(event, message);
      const { kind, type, to } = message;
      if (kind === "produce" && type === "request" && (event === "delivered" || event === "replayed"))
        this.checker.produceArrived(to);
      if (MESSAGE_FAULTS.has(event)) this.#count(event);
    };
    const startMs = cluster.kernel.nowUs / 1000;
    for (const fault of this.#plan.faults) {
      await cluster.wait(Math.max(0, startMs + fault.atMs - cluster.kernel.nowUs / 1000));
      this.#strike(fault);
    }
    await cluster.wait(Math.max(0, startMs + this.#plan.durationMs - cluster.kernel.nowUs / 1000));
    this.#isOver = true;
    this.pace.end();
    swarm?.stop();
    for (const [name, count] of swarm?.counts ?? []) this.counts.set(name, count);
    await this.#repair();
    void this.#guard(this.#operate());
    const stop = async (): Promise<void> => {
      for (const client of [...producers, consumer, tail, endAsker]) client.stop();
      await Promise.all([clients, reading]);
    };
    if (this.#liveness !== undefined) await this.#demandLiveness(this.#liveness, stop);
    await this.#within("all batches are acknowledged", stop());
    await cluster.converged(CONVERGENCE_MS);
    this.#isDone = true;
    this.leaderEpochs = cluster.decided?.leaderEpoch ?? -1;
    await this.#judgeHistory();
    await this.#verify();
    await this.#answersAtOnce();
  }

  // ---- faults --------------------------------------------------------------------------------------------------------

  #strike(fault: Fault): void {
    const { cluster } = this;
    if (fault.type === "killController") {
      if (cluster.controller === undefined) return this.#count("skipped");
      this.#count(fault.type);
      cluster.killController();
      return this.#later(fault.restartAfterMs, () => void this.#guard(cluster.startController()));
    }
    if (fault.type === "pauseController") {
      if (cluster.controller === undefined) return this.#count("skipped");
      this.#count(fault.type);
      cluster.pauseController();
      return this.#later(fault.durationMs, () => void this.#guard(cluster.resumeController()));
    }
    const brokerId = fault.target === "leader" ? (cluster.decided?.leader ?? -1) : fault.target;
    const node = cluster.nodes.get(brokerId);
    if (node === undefined || !this.#isPossible(fault, brokerId)) return this.#count("skipped");
    if (fault.type === "powerCut") this.#count(`${fault.type} ${fault.loss}`);
    else if (!("skip" in fault)) this.#count(fault.type);
    switch (fault.type) {
      case "kill":
        this.checker.crashes(brokerId, false);
        void this.#guard(cluster.kill(brokerId, fault));
        return this.#restartLater(brokerId, fault.restartAfterMs);
      case "powerCut":
        this.checker.crashes(brokerId, true);
        void this.#guard(cluster.powerCut(brokerId, fault.loss, fault));
        return this.#restartLater(brokerId, fault.restartAfterMs);
      case "shutDown":
        void this.#guard(this.#shutDown(brokerId, fault.restartAfterMs));
        return;
      case "pause":
        cluster.pause(brokerId);
        return this.#later(fault.durationMs, () => cluster.resume(brokerId));
      case "depose":
        this.#depose(brokerId, fault.durationMs);
        return this.#later(fault.durationMs, () => cluster.network.heal(brokerId, CONTROLLER_ID));
      case "holdBack": {
        const { manager } = node;
        cluster.tell(`Broker ${brokerId} is held back: it fetches nothing for a while.`);
        manager?.pauseFetching();
        return this.#later(fault.durationMs, () => manager?.resumeFetching());
      }
      case "cutOff":
        this.#cutOff(brokerId, fault);
        return this.#later(fault.durationMs, () => cluster.network.heal());
      case "strand":
        return this.#strand(brokerId, fault);
      case "leapfrog":
        return this.#leap(fault, 0);
      case "echo":
        return this.#echo(brokerId, fault);
      case "slowDisk": {
        const { files } = node.environment;
        files.slowDown(fault.extraMsMax * 1000);
        return this.#later(fault.durationMs, () => files.slowDown(0));
      }
      case "clockJump":
        return node.environment.clock.jumpWall(fault.deltaMs);
      case "deleteRecords":
        void this.#guard(this.#deleteRecords(node, fault.share));
        return;
      case "writeError":
      case "readError":
      case "syncError":
        return this.#breakDisk(node, fault);
      case "noHandles":
        return this.#takeHandles(node, fault.durationMs);
      case "diskFull": {
        const full = node.environment.files.core.faults.inject(DISK_FULL);
        return this.#later(fault.durationMs, () => full.cancel());
      }
      default:
        return fault satisfies never;
    }
  }

  #isPossible(fault: Fault, brokerId: number): boolean {
    const node = this.cluster.node(brokerId);
    // Until it has noted that its disk has failed, or the controller has heard of it, the next process would be trusted.
    const isUntold = node.brokenDisk === "lost" && !this.#isKnownBroken(node);
    if (isUntold && (fault.type === "kill" || fault.type === "shutDown" || fault.type === "echo")) return false;
    switch (fault.type) {
      case "kill":
        return node.isRunning && this.checker.isAdmissible(brokerId, false);
      case "echo":
      case "powerCut": {
        // A machine that stands still may lose its power too.
        const losesTail = this.#plan.cluster.log?.flush !== "always";
        return this.checker.isAdmissible(brokerId, losesTail);
      }
      case "shutDown":
        return node.manager !== undefined && this.checker.isAdmissible(brokerId, false);
      case "deleteRecords":
        return node.partition?.leaderState !== undefined;
      default:
        return node.isRunning;
    }
  }

  async #shutDown(brokerId: number, restartAfterMs: number): Promise<void> {
    const node = this.cluster.node(brokerId);
    const { incarnation } = node;
    // The floor is what it has by the time it is down; that is looked at with every event until then.
    await this.cluster.shutDown(brokerId);
    if (node.incarnation === incarnation && !node.isRunning) this.#restartLater(brokerId, restartAfterMs);
  }

  async #deleteRecords(node: Node, share: number): Promise<void> {
    const { brokerId, broker, partition, clock } = node;
    if (broker === undefined || partition === undefined) return;
    const { logStartOffset } = partition.log;
    const offset = logStartOffset + Math.floor((share * (partition.highWatermark - logStartOffset)) / 100);
    this.cluster.tell(`Somebody has broker ${brokerId} delete its records below ${offset}.`);
    try {
      const startOffset = await broker.logs.deleteRecords(NAME.topic, NAME.partition, toOffset(offset));
      // Nobody hears the answer of a process that has died meanwhile.
      if (node.clock === clock) this.checker.deletedRecords(brokerId, startOffset);
    } catch (error) {
      // Its disk is full, or has failed, or its log is being closed.
      if (!(error instanceof LogError)) throw error;
    }
  }

  /** The others fetch nothing for a while; what the leader takes meanwhile only it has when it goes. */
  #strand(brokerId: number, fault: Fault & { type: "strand" }): void {
    const followers = [...this.cluster.nodes.values()].filter((node) => node.brokerId !== brokerId);
    const managers = followers.flatMap(({ manager }) => manager ?? []);
    this.cluster.tell(`Nobody fetches from broker ${brokerId}: what it takes now only it has.`);
    for (const manager of managers) manager.pauseFetching();
    this.#later(fault.heldMs, () => {
      this.#strike({ ...fault, ...fault.fate, target: brokerId });
      this.#later(fault.releasedAfterMs, () => {
        for (const manager of managers) manager.resumeFetching();
      });
    });
  }

  #depose(brokerId: number, durationMs: number): void {
    // Its question for the cluster's state may be parked: cut off, it would wait for the answer until it times out.
    if (durationMs > 0) this.cluster.network.partition(brokerId, CONTROLLER_ID);
    void this.#guard(this.cluster.controller?.brokerDied(brokerId) ?? Promise.resolve());
  }

  /** The leader of the time goes after its time, with the followers that its leap holds back, and so on with the next. */
  #leap(fault: Fault & { type: "leapfrog" }, at: number): void {
    const { cluster } = this;
    const leap = fault.leaps[at];
    this.#release();
    if (leap === undefined) return;
    const { held, answersLateMs, fetchesAgainMs, heldMs, fate } = leap;
    const asked = cluster.decided?.leader ?? -1;
    const next = cluster.decided?.replicas.find((member) => member !== asked && cluster.decided?.isr.includes(member));
    for (const { brokerId, manager } of cluster.nodes.values()) {
      const isHeld = typeof held === "number" ? (held >> brokerId) % 2 === 1 : held === "all" || brokerId === next;
      if (isHeld) manager?.pauseFetching();
    }
    const again = cluster.network.replay(
      { to: asked, kind: "fetch", count: fetchesAgainMs === 0 ? 0 : Number.POSITIVE_INFINITY },
      fetchesAgainMs * 1000,
    );
    this.#undo.push(() => again.cancel());
    this.#later(heldMs, () => {
      again.cancel();
      const leader = cluster.decided?.leader ?? -1;
      if (answersLateMs > 0 && leader >= 0) {
        const late = cluster.network.hold({ from: leader, kind: "fetch", type: "response" });
        this.#undo.push(() => late.release());
        this.#later(answersLateMs, () => late.release());
      }
      this.#later(answersLateMs / 2, () => {
        this.#strike({ atMs: fault.atMs, target: "leader", ...fate });
        if (fate.type === "pause") void this.#guard(cluster.controller?.brokerDied(leader) ?? Promise.resolve());
        // A leader that lives would give those that were held what they are not to have.
        const pauseMs = fate.type === "depose" ? ELECTED_MS : 0;
        this.#later(at + 1 < fault.leaps.length ? pauseMs : fault.releasedAfterMs, () => this.#leap(fault, at + 1));
      });
    });
  }

  #release(): void {
    for (const { manager } of this.cluster.nodes.values()) manager?.resumeFetching();
  }

  #echo(brokerId: number, fault: Fault & { type: "echo" }): void {
    const { cluster, checker } = this;
    const { isJoining, recordedMs, restartAfterMs, heldMs, echoAfterMs, loss } = fault;
    const afterMs = recordedMs + restartAfterMs + echoAfterMs;
    const recording = cluster.network.replay({ from: brokerId, kind: "fetch" }, afterMs * 1000);
    this.#undo.push(() => recording.cancel());
    if (isJoining && cluster.node(brokerId).isRunning) {
      const held = cluster.network.hold({ to: CONTROLLER_ID, kind: "alterPartition" });
      this.#undo.push(() => held.release());
      this.#later(afterMs, () => held.release());
      checker.crashes(brokerId, false);
      void this.#guard(cluster.kill(brokerId));
      this.#restartLater(brokerId, 0);
    }
    this.#later(recordedMs, () => {
      recording.cancel();
      if (!this.#isPossible(fault, brokerId)) return this.#count("skipped");
      checker.crashes(brokerId, true);
      void this.#guard(cluster.powerCut(brokerId, loss));
      const restart = async (): Promise<void> => {
        await cluster.start(brokerId);
        const { manager } = cluster.node(brokerId);
        manager?.pauseFetching();
        this.#later(heldMs, () => manager?.resumeFetching());
      };
      this.#later(restartAfterMs, () => void this.#guard(restart()));
    });
  }

  #cutOff(brokerId: number, fault: Fault & { type: "cutOff" }): void {
    const { network } = this.cluster;
    for (const other of network.nodes) {
      if (other === brokerId) continue;
      if (fault.from === "brokers" && other === CONTROLLER_ID) continue;
      if (fault.from === "controller" && other !== CONTROLLER_ID) continue;
      if (fault.direction !== "hear") network.cut(brokerId, other);
      if (fault.direction !== "send") network.cut(other, brokerId);
    }
  }

  #restartLater(brokerId: number, afterMs: number): void {
    this.#later(this.#isOver ? 0 : afterMs, () => void this.#guard(this.cluster.start(brokerId)));
  }

  /**
   * The broker's next write, read or sync fails, or one soon after: to the controller its machine is lost then, and whoever runs it starts it
   * anew. Counted when it comes; by then it may be one that nothing could survive, and does not come.
   */
  #breakDisk(node: Node, fault: Fault & { readonly type: "writeError" | "readError" | "syncError" }): void {
    const { brokerId, incarnation } = node;
    const losesBytes = fault.type === "syncError" && fault.pages === "old";
    const isWanted = (path: string): boolean => {
      // While it opens its logs there is nobody yet to fail.
      if (node.incarnation !== incarnation || node.broker === undefined || node.brokenDisk !== undefined) return false;
      if (this.#isOver || !this.checker.isAdmissible(brokerId, true)) return false;
      this.#count(fault.type === "syncError" ? `${fault.type} ${fault.pages}` : fault.type);
      this.cluster.tell(`A ${DISK_CALLS[fault.type]} of broker ${brokerId} fails: ${path}.`);
      this.checker.diskFails(brokerId, losesBytes);
      node.brokenDisk = losesBytes ? "lost" : LOG_FILE.test(path) ? "kept" : "beside";
      this.#restartBroken(node, incarnation, fault.restartAfterMs);
      return true;
    };
    const common = {
      skip: fault.skip,
      code: "EIO",
      isWanted,
      ...(fault.part === "log" || losesBytes ? { path: LOG_FILE } : {}),
    } as const;
    const { faults } = node.environment.files.core;
    if (fault.type === "writeError") faults.inject({ ...common, operation: "write", written: "part" });
    else if (fault.type === "readError") faults.inject({ ...common, operation: "read" });
    else faults.inject({ ...common, operation: "sync", pages: fault.pages });
  }

  /** A replica that cannot do without the file gives up, and whoever runs its process starts it anew. */
  #takeHandles(node: Node, durationMs: number): void {
    const { brokerId, incarnation } = node;
    const isWanted = (): boolean => {
      // While it opens its logs there is nobody yet to fail.
      if (node.incarnation !== incarnation || node.broker === undefined || node.brokenDisk !== undefined) return false;
      return this.checker.isAdmissible(brokerId, true);
    };
    const none = node.environment.files.core.faults.inject({ ...NO_HANDLES, isWanted });
    this.#later(durationMs, () => {
      none.cancel();
      if (this.#hasGivenUp(node)) void this.#guard(this.#startAnew(brokerId));
    });
  }

  #hasGivenUp({ brokerId, incarnation, isRunning }: Node): boolean {
    const failures = this.cluster.failures.filter((failure) => failure.brokerId === brokerId);
    return (
      isRunning && failures.some((failure) => failure.incarnation === incarnation && NO_HANDLE.test(failure.reason))
    );
  }

  /** Not before that is known, where bytes are lost. */
  #restartBroken(node: Node, incarnation: number, afterMs: number): void {
    this.#later(afterMs, () => {
      if (node.incarnation !== incarnation || !node.isRunning) return;
      if (node.brokenDisk === "lost" && !this.#isKnownBroken(node))
        return this.#restartBroken(node, incarnation, RESTART_AGAIN_MS);
      void this.#guard(this.#startAnew(node.brokerId));
    });
  }

  /** To the controller, or to its next process. */
  #isKnownBroken({ brokerId, incarnation, environment }: Node): boolean {
    const note = environment.files.core.log.live.state.get(FAILED_BOOT_KEY);
    if (note !== undefined && decodeUtf8(note).endsWith(` ${brokerId}-${incarnation}`)) return true;
    const known = this.cluster.controller?.state.brokers.find((broker) => broker.brokerId === brokerId);
    return known?.incarnationId === `${brokerId}-${incarnation} failed`;
  }

  async #startAnew(brokerId: number): Promise<void> {
    this.checker.crashes(brokerId, false);
    await this.cluster.kill(brokerId, { isTold: false });
    await this.cluster.start(brokerId);
  }

  /** When the time of faults is over first, the repair does all of it. */
  #later(afterMs: number, act: () => void): void {
    const wasOver = this.#isOver;
    this.cluster.kernel.schedule(afterMs * 1000, "test.later", () => {
      if (this.#isOver === wasOver) act();
    });
  }

  #count(name: string): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }

  // ---- the end -------------------------------------------------------------------------------------------------------

  /** With some of the brokers out for ever; then they come back too. */
  async #demandLiveness(liveness: Liveness, stopClients: () => Promise<void>): Promise<void> {
    try {
      await liveness.demand(stopClients);
      this.#count(`${liveness.frozen.size} frozen`);
    } catch (error) {
      if (!(error instanceof ExcusedStall)) throw error;
      this.#count("excused stall");
    }
    this.#liveness = undefined;
    await this.#repair();
  }

  /** Heals everything, but whom the plan freezes for ever. */
  async #repair(): Promise<void> {
    const { cluster } = this;
    cluster.network.heal();
    for (const undo of this.#undo) undo();
    for (const { environment } of cluster.nodes.values()) {
      environment.files.core.faults.clear();
      environment.files.slowDown(0);
    }
    if (cluster.controller === undefined) await cluster.startController();
    await cluster.resumeController();
    await this.#liveness?.freeze();
    for (const node of this.#liveness?.core ?? cluster.nodes.values()) {
      cluster.resume(node.brokerId);
      if (node.brokenDisk === "lost")
        await cluster.until(`the disk of broker ${node.brokerId} is known to be broken`, () =>
          this.#isKnownBroken(node),
        );
      if (node.brokenDisk !== undefined || this.#hasGivenUp(node)) await this.#startAnew(node.brokerId);
      node.manager?.resumeFetching();
      if (!node.isRunning) await cluster.start(node.brokerId);
    }
  }

  /**
   * The last member of the ISR may turn out to have lost its tail while others, fenced before, have all of it. The controller then
   * trusts nobody, and an operator names one that was in sync last, as far as there is one; of several the one with the longest log.
   */
  async #operate(): Promise<void> {
    const { cluster } = this;
    while (!this.#isDone) {
      await cluster.wait(500);
      const nodes = this.#liveness?.core ?? [...cluster.nodes.values()];
      const isStuck = cluster.decided?.leader === -1 && cluster.decided.isr.length === 0;
      if (!isStuck || nodes.some(({ partition }) => partition === undefined)) continue;
      const latest = ({ log }: Node): number => log?.epochEntries.at(-1)?.epoch ?? -1;
      const end = ({ log }: Node): number => log?.logEndOffset ?? 0;
      const whole = nodes.filter(({ brokerId }) => this.checker.holdsCommitted(brokerId));
      // Who has the rest of it may come back.
      if (this.#liveness !== undefined && whole.length === 0) continue;
      const choice = whole.length > 0 ? whole : nodes;
      const [best] = choice.toSorted((first, second) => latest(second) - latest(first) || end(second) - end(first));
      this.#count("unclean election");
      await cluster.controller?.electUncleanly(NAME, best?.brokerId ?? -1);
    }
  }

  /** Where all is whole and nothing is lost, an append is answered at once, not when somebody's wait is over. */
  async #answersAtOnce(): Promise<void> {
    const { cluster } = this;
    let inARow = 0;
    for (let probe = 0; inARow < PROBES_AT_ONCE; probe += 1) {
      if (probe === PROBES_MAX) throw new Violation("L2", "appends wait although nothing is amiss");
      // What was lost before has to be given up first.
      await cluster.wait(1000);
      const startUs = cluster.kernel.nowUs;
      const { error } = await cluster.produce(cluster.leader() ?? 1, [`0:${probe}:`]);
      const isAtOnce = error === "NONE" && cluster.kernel.nowUs - startUs < AT_ONCE_MS * 1000;
      inARow = isAtOnce ? inARow + 1 : 0;
    }
    // The digests of the report are those of logs that are the same.
    await cluster.converged(CONVERGENCE_MS);
  }

  async #verify(): Promise<void> {
    const { cluster, checker } = this;
    // Answers to fetches bring it.
    const startOf = (brokerId: number): number => cluster.node(brokerId).log?.logStartOffset ?? 0;
    await cluster.until("followers begin no lower than their leader", () =>
      [...cluster.nodes.keys()].every((brokerId) => startOf(brokerId) >= startOf(cluster.leader() ?? brokerId)),
    );
    const [first, ...others] = checker.chains();
    if (others.some((chain) => chain !== first)) throw new Violation("S24", "the logs differ at the end");
    const isExpected = (reason: string): boolean => reason === "FENCED_LEADER_EPOCH" || NO_HANDLE.test(reason);
    const unexpected = cluster.failures.find(({ reason }) => !isExpected(reason));
    if (unexpected !== undefined)
      throw new Violation("S22", `broker ${unexpected.brokerId} gave up: ${unexpected.reason}`);
    const { log } = cluster.node(cluster.leader() ?? 1);
    checkFinalLog(log === undefined ? [] : await recordsOf(log), this.producers, log?.logStartOffset ?? 0);
    await checkFinalFiles(cluster, new SimulatedRandom(this.#plan.cluster.seed * 41));
  }

  /** Reads everything as a client does, and has all that clients saw judged. */
  async #judgeHistory(): Promise<void> {
    const { cluster, history } = this;
    const leader = cluster.leader() ?? 1;
    const startOffset = cluster.node(leader).log?.logStartOffset ?? 0;
    history.quiet(startOffset);
    await new Tail(cluster, history, this.pace, "final").readToEnd(leader, startOffset);
    await this.endAsker.ask();
    history.finish();
  }

  async #within(what: string, done: Promise<unknown>): Promise<void> {
    let isDone = false;
    const finish = async (): Promise<void> => {
      await this.#guard(done);
      isDone = true;
    };
    const finished = finish();
    await this.cluster.until(what, () => isDone, CONVERGENCE_MS);
    await finished;
  }

  /** What goes wrong beside the main course ends the run too. */
  async #guard(work: Promise<unknown>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.cluster.kernel.fail(error);
    }
  }
}
