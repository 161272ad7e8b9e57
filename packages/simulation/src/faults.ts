import { decodeUtf8, toOffset } from "@tidemark/base";
import { LogError } from "@tidemark/log";
import type { DiskFault } from "@tidemark/simulator";
import type { Checker } from "./checker.ts";
import { CONTROLLER_ID, NAME } from "./cluster.ts";
import type { Cluster, Node } from "./cluster.ts";
import type { Fault } from "./plan.ts";

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
export const NO_HANDLE = /"EMFILE"/u;
const NO_HANDLES: DiskFault = { operation: "open", code: "EMFILE", count: Number.POSITIVE_INFINITY };
const DISK_CALLS = { writeError: "write", readError: "read", syncError: "sync" } as const;

/** Where a broker notes the boot and the process in which its disk failed, for its next process (`ReplicaManager`). */
const FAILED_BOOT_KEY = "failed-boot";

/** Until it is looked again whether a broker with a broken disk may be started anew. */
const RESTART_AGAIN_MS = 500;

/** Time for an election, and for the news of it, in a cluster whose network is quiet. */
const ELECTED_MS = 30;

/** Makes the faults of a plan come, and ends those that last. */
export class Faults {
  /** By type; those that no protocol could survive are not made, and counted as skipped. */
  readonly counts = new Map<string, number>();
  readonly #cluster: Cluster;
  readonly #checker: Checker;
  /** Undo the message faults of a fault that the end of faults came before. */
  readonly #undo: (() => void)[] = [];
  #isOver = false;

  constructor(cluster: Cluster, checker: Checker) {
    this.#cluster = cluster;
    this.#checker = checker;
  }

  /** From now on nothing comes any more, and what was to end some fault later is left to whoever repairs. */
  end(): void {
    this.#isOver = true;
  }

  /** Takes back what the end of the faults found under way. */
  undo(): void {
    for (const undo of this.#undo) undo();
  }

  /** Makes it come, or skips what nothing could survive. */
  strike(fault: Fault): void {
    const cluster = this.#cluster;
    if (fault.type === "killController") {
      if (cluster.controller === undefined) return this.count("skipped");
      this.count(fault.type);
      cluster.killController();
      return this.#later(fault.restartAfterMs, () => void this.#guard(cluster.startController()));
    }
    if (fault.type === "pauseController") {
      if (cluster.controller === undefined) return this.count("skipped");
      this.count(fault.type);
      cluster.pauseController();
      return this.#later(fault.durationMs, () => void this.#guard(cluster.resumeController()));
    }
    const brokerId = fault.target === "leader" ? (cluster.decided?.leader ?? -1) : fault.target;
    const node = cluster.nodes.get(brokerId);
    if (node === undefined || !this.#isPossible(fault, brokerId)) return this.count("skipped");
    if (fault.type === "powerCut") this.count(`${fault.type} ${fault.loss}`);
    else if (!("skip" in fault)) this.count(fault.type);
    switch (fault.type) {
      case "kill":
        this.#checker.crashes(brokerId, false);
        void this.#guard(cluster.kill(brokerId, fault));
        return this.#restartLater(brokerId, fault.restartAfterMs);
      case "powerCut":
        this.#checker.crashes(brokerId, true);
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
    const node = this.#cluster.node(brokerId);
    // Until it has noted that its disk has failed, or the controller has heard of it, the next process would be trusted.
    const isUntold = node.brokenDisk === "lost" && !this.isKnownBroken(node);
    if (isUntold && (fault.type === "kill" || fault.type === "shutDown" || fault.type === "echo")) return false;
    switch (fault.type) {
      case "kill":
        return node.isRunning && this.#checker.isAdmissible(brokerId, false);
      case "echo":
      case "powerCut": {
        // A machine that stands still may lose its power too.
        const losesTail = this.#cluster.options.log?.flush !== "always";
        return this.#checker.isAdmissible(brokerId, losesTail);
      }
      case "shutDown":
        return node.manager !== undefined && this.#checker.isAdmissible(brokerId, false);
      case "deleteRecords":
        return node.partition?.leaderState !== undefined;
      default:
        return node.isRunning;
    }
  }

  async #shutDown(brokerId: number, restartAfterMs: number): Promise<void> {
    const node = this.#cluster.node(brokerId);
    const { incarnation } = node;
    // The floor is what it has by the time it is down; that is looked at with every event until then.
    await this.#cluster.shutDown(brokerId);
    if (node.incarnation === incarnation && !node.isRunning) this.#restartLater(brokerId, restartAfterMs);
  }

  async #deleteRecords(node: Node, share: number): Promise<void> {
    const { brokerId, broker, partition, clock } = node;
    if (broker === undefined || partition === undefined) return;
    const { logStartOffset } = partition.log;
    const offset = logStartOffset + Math.floor((share * (partition.highWatermark - logStartOffset)) / 100);
    this.#cluster.tell(`Somebody has broker ${brokerId} delete its records below ${offset}.`);
    try {
      const startOffset = await broker.logs.deleteRecords(NAME.topic, NAME.partition, toOffset(offset));
      // Nobody hears the answer of a process that has died meanwhile.
      if (node.clock === clock) this.#checker.deletedRecords(brokerId, startOffset);
    } catch (error) {
      // Its disk is full, or has failed, or its log is being closed.
      if (!(error instanceof LogError)) throw error;
    }
  }

  /** The others fetch nothing for a while; what the leader takes meanwhile only it has when it goes. */
  #strand(brokerId: number, fault: Fault & { type: "strand" }): void {
    const followers = [...this.#cluster.nodes.values()].filter((node) => node.brokerId !== brokerId);
    const managers = followers.flatMap(({ manager }) => manager ?? []);
    this.#cluster.tell(`Nobody fetches from broker ${brokerId}: what it takes now only it has.`);
    for (const manager of managers) manager.pauseFetching();
    this.#later(fault.heldMs, () => {
      this.strike({ ...fault, ...fault.fate, target: brokerId });
      this.#later(fault.releasedAfterMs, () => {
        for (const manager of managers) manager.resumeFetching();
      });
    });
  }

  #depose(brokerId: number, durationMs: number): void {
    // Its question for the cluster's state may be parked: cut off, it would wait for the answer until it times out.
    if (durationMs > 0) this.#cluster.network.partition(brokerId, CONTROLLER_ID);
    void this.#guard(this.#cluster.controller?.brokerDied(brokerId) ?? Promise.resolve());
  }

  /** The leader of the time goes after its time, with the followers that its leap holds back, and so on with the next. */
  #leap(fault: Fault & { type: "leapfrog" }, at: number): void {
    const cluster = this.#cluster;
    const leap = fault.leaps[at];
    this.#release();
    if (leap === undefined) return;
    const { held, answersLateMs, fetchesAgainMs, heldMs, fate } = leap;
    const asked = cluster.decided?.leader ?? -1;
    const others = cluster.decided?.replicas.filter(
      (member) => member !== asked && cluster.decided?.isr.includes(member),
    );
    // The leader before has just gone, and the first of the others is about to lead.
    const hasGone = at > 0 && fault.leaps[at - 1]?.fate.type !== "depose";
    const next = others?.[hasGone ? 1 : 0];
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
        this.strike({ atMs: fault.atMs, target: "leader", ...fate });
        if (fate.type === "pause") void this.#guard(cluster.controller?.brokerDied(leader) ?? Promise.resolve());
        // A leader that lives would give those that were held what they are not to have.
        const pauseMs = fate.type === "depose" ? ELECTED_MS : 0;
        this.#later(at + 1 < fault.leaps.length ? pauseMs : fault.releasedAfterMs, () => this.#leap(fault, at + 1));
      });
    });
  }

  #release(): void {
    for (const { manager } of this.#cluster.nodes.values()) manager?.resumeFetching();
  }

  #echo(brokerId: number, fault: Fault & { type: "echo" }): void {
    const cluster = this.#cluster;
    const checker = this.#checker;
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
      if (!this.#isPossible(fault, brokerId)) return this.count("skipped");
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
    const { network } = this.#cluster;
    for (const other of network.nodes) {
      if (other === brokerId) continue;
      if (fault.from === "brokers" && other === CONTROLLER_ID) continue;
      if (fault.from === "controller" && other !== CONTROLLER_ID) continue;
      if (fault.direction !== "hear") network.cut(brokerId, other);
      if (fault.direction !== "send") network.cut(other, brokerId);
    }
  }

  #restartLater(brokerId: number, afterMs: number): void {
    this.#later(this.#isOver ? 0 : afterMs, () => void this.#guard(this.#cluster.start(brokerId)));
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
      if (this.#isOver || !this.#checker.isAdmissible(brokerId, true)) return false;
      this.count(fault.type === "syncError" ? `${fault.type} ${fault.pages}` : fault.type);
      this.#cluster.tell(`A ${DISK_CALLS[fault.type]} of broker ${brokerId} fails: ${path}.`);
      this.#checker.diskFails(brokerId, losesBytes);
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
      return this.#checker.isAdmissible(brokerId, true);
    };
    const none = node.environment.files.core.faults.inject({ ...NO_HANDLES, isWanted });
    this.#later(durationMs, () => {
      none.cancel();
      if (this.hasGivenUp(node)) void this.#guard(this.startAnew(brokerId));
    });
  }

  /** For want of a file handle: that its process has to be started anew for. */
  hasGivenUp({ brokerId, incarnation, isRunning }: Node): boolean {
    const failures = this.#cluster.failures.filter((failure) => failure.brokerId === brokerId);
    return (
      isRunning && failures.some((failure) => failure.incarnation === incarnation && NO_HANDLE.test(failure.reason))
    );
  }

  /** Not before that is known, where bytes are lost. */
  #restartBroken(node: Node, incarnation: number, afterMs: number): void {
    this.#later(afterMs, () => {
      if (node.incarnation !== incarnation || !node.isRunning) return;
      if (node.brokenDisk === "lost" && !this.isKnownBroken(node))
        return this.#restartBroken(node, incarnation, RESTART_AGAIN_MS);
      void this.#guard(this.startAnew(node.brokerId));
    });
  }

  /** To the controller, or to its next process. */
  isKnownBroken({ brokerId, incarnation, environment }: Node): boolean {
    const note = environment.files.core.log.live.state.get(FAILED_BOOT_KEY);
    if (note !== undefined && decodeUtf8(note).endsWith(` ${brokerId}-${incarnation}`)) return true;
    const known = this.#cluster.controller?.state.brokers.find((broker) => broker.brokerId === brokerId);
    return known?.incarnationId === `${brokerId}-${incarnation} failed`;
  }

  /** Kills its process and starts another one. */
  async startAnew(brokerId: number): Promise<void> {
    this.#checker.crashes(brokerId, false);
    await this.#cluster.kill(brokerId, { isTold: false });
    await this.#cluster.start(brokerId);
  }

  /** When the time of faults is over first, the repair does all of it. */
  #later(afterMs: number, act: () => void): void {
    const wasOver = this.#isOver;
    this.#cluster.kernel.schedule(afterMs * 1000, "test.later", () => {
      if (this.#isOver === wasOver) act();
    });
  }

  count(name: string): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }

  /** What goes wrong beside the main course ends the run too. */
  async #guard(work: Promise<unknown>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.#cluster.kernel.fail(error);
    }
  }
}
