import { DEFAULT_LOG_CONFIG } from "@tidemark/log";
import { PeerError } from "@tidemark/wire";
import type { Checker } from "./checker.ts";
import { Violation } from "./checker.ts";
import type { ClientHistory } from "./client-history.ts";
import { CLIENT_ID, CONTROLLER_ID, textBatch } from "./cluster.ts";
import type { Cluster, Node } from "./cluster.ts";
import type { FrozenFault, LivenessPlan } from "./plan.ts";
import { livenessBounds } from "./liveness-bounds.ts";
import type { LivenessBounds } from "./liveness-bounds.ts";

/** Each as long as a deleted file stays: longer together than the time between two looks of retention. */
const RETENTION_WAITS_MAX = 6;
/** How long clients go on in the frozen world, and how long it is looked at when nobody wants anything of it any more. */
const WRITING_MS = 10_000;
const IDLE_MS = 60_000;
/** How often the ISR is looked at then. */
const LOOK_MS = 100;
/** A leader waits so long for the ISR to take a batch, before it is sent again. */
const PROBE_MS = 2000;
const PROBE_BACK_OFF_MS = 100;
/** Before that, for timers of what is over to run out. */
const DRAIN_MS = 10_000;
/** So long after the faults the network may say again what it was told before: that a broker lives which is dead, for one. */
const REPLAYS_MS = 60_000;

/** What a cluster holds that nobody uses has to be as much later as it is now. */
interface Level {
  readonly events: number;
  readonly openFiles: number;
  readonly requests: number;
}

/** The rest stays out for ever, and the core does not get going: but nobody could. */
export class ExcusedStall extends Error {
  override readonly name = "ExcusedStall";
}

/**
 * When the faults are over some brokers stay as they are for ever: dead, stopped, cut off. The others, the core, are healed, could make
 * progress, and have to, within bounds that follow from the settings. Healing everybody would hide a broker that disturbs the rest.
 *
 * | id | demand |
 * |---|---|
 * | L1 | a leader, known to the whole core |
 * | L2 | what clients began comes to an end; a new batch is acknowledged at once |
 * | L3 | the whole core in the ISR |
 * | L4 | high watermark and log end are equal on the core, when nobody writes |
 * | L5 | nobody is elected any more, the ISR stays, and few messages are sent, when nobody wants anything |
 * | L6 | timers, open files and requests do not become more then, nobody waits |
 * | L7 | a core that stands still is excused only where it is shown that a copy that it would need is not in it |
 */
export class Liveness {
  readonly frozen = new Map<number, FrozenFault>();
  readonly #cluster: Cluster;
  readonly #checker: Checker;
  readonly #history: ClientHistory;
  readonly #plan: LivenessPlan;
  readonly #bounds: LivenessBounds;
  #messages = 0;
  #replaysEndUs = 0;

  constructor(cluster: Cluster, checker: Checker, history: ClientHistory, plan: LivenessPlan) {
    this.#cluster = cluster;
    this.#checker = checker;
    this.#history = history;
    this.#plan = plan;
    this.#bounds = livenessBounds(cluster.options);
  }

  get core(): readonly Node[] {
    return [...this.#cluster.nodes.values()].filter(({ brokerId }) => !this.frozen.has(brokerId));
  }

  /** Freezes whom the plan names, as far as the rest can do without. The network is whole before. */
  async freeze(): Promise<void> {
    if (this.#history.mayReplay) this.#replaysEndUs = this.#cluster.kernel.nowUs + REPLAYS_MS * 1000;
    for (const { brokerId, fault } of this.#plan.frozen) {
      if (!this.#canDoWithout(brokerId)) continue;
      this.frozen.set(brokerId, fault);
      await this.#inflict(brokerId, fault);
    }
  }

  /**
   * Has the demands met, one after another.
   * @param stopClients makes clients begin nothing new, and resolves when what they began is over
   * @throws Violation; ExcusedStall
   */
  async demand(stopClients: () => Promise<void>): Promise<void> {
    const { leaderMs, settleMs, deliveryMs } = this.#bounds;
    await this.#within("L1", "a leader that the core knows", leaderMs, () => this.#knowsLeader);
    await this.#within("L3", "the core in the ISR", settleMs, () => this.#isInSync);
    await this.#probe();
    await this.#cluster.wait(WRITING_MS);
    let isOver = false;
    const stopped = stopClients().then(() => (isOver = true));
    await this.#within("L2", "the end of what clients began", deliveryMs, () => isOver);
    await stopped;
    await this.#within("L4", "high watermarks at the log end", settleMs, () => this.#isCommitted);
    await this.#idle();
  }

  // ---- the core ------------------------------------------------------------------------------------------------------

  /**
   * The rest is enough for min.insync.replicas, and one of them is in the ISR and stays there. Whoever was started anew, or was silent,
   * may have to leave it, and the last member that the controller knows of may then be one who never comes back.
   */
  #canDoWithout(brokerId: number): boolean {
    const { decided, options, nodes } = this.#cluster;
    if (decided === undefined) return false;
    const rest = this.core.filter((node) => node.brokerId !== brokerId);
    if (rest.length < Math.min(options.minInsyncReplicas ?? 2, nodes.size)) return false;
    const members = rest.filter((node) => decided.isr.includes(node.brokerId));
    if (!members.some((node) => this.#checker.holdsCommitted(node.brokerId))) return false;
    if (!decided.isr.includes(brokerId)) return true;
    return members.some((node) => this.#staysMember(node));
  }

  #staysMember(node: Node): boolean {
    const { controller } = this.#cluster;
    const registered = controller?.state.brokers.find((broker) => broker.brokerId === node.brokerId);
    return (
      registered?.isFenced === false &&
      registered.brokerEpoch === node.manager?.brokerEpoch &&
      node.clock?.isPaused === false &&
      this.#checker.holdsCommitted(node.brokerId)
    );
  }

  async #inflict(brokerId: number, fault: FrozenFault): Promise<void> {
    const cluster = this.#cluster;
    const { network } = cluster;
    const node = cluster.node(brokerId);
    if (!node.isRunning && fault !== "dead") await cluster.start(brokerId);
    // A pause that the end of the faults came upon would last for ever, and hide the fault that is meant.
    if (fault !== "dead" && fault !== "paused") cluster.resume(brokerId);
    switch (fault) {
      case "dead":
        if (!node.isRunning) return;
        this.#checker.crashes(brokerId, false);
        return cluster.kill(brokerId, { isTold: false });
      case "paused":
        return cluster.pause(brokerId);
      case "heldBack":
        return node.manager?.pauseFetching();
      case "cutOff":
        return network.isolate(brokerId);
      case "exiled":
        for (const other of this.#others(brokerId)) if (other !== CLIENT_ID) network.partition(brokerId, other);
        return;
      case "mute":
        for (const other of this.#others(brokerId)) network.cut(brokerId, other);
        return;
      case "deaf":
        // The controller takes it to be alive. If it led, or could, nobody could do anything about it.
        if (cluster.decided?.isr.includes(brokerId) === true) return network.isolate(brokerId);
        for (const other of this.#others(brokerId)) network.cut(other, brokerId);
        return;
      default:
        fault satisfies never;
    }
  }

  #others(brokerId: number): readonly number[] {
    return [...new Set([...this.#cluster.network.nodes, CONTROLLER_ID])].filter((other) => other !== brokerId);
  }

  // ---- demands -------------------------------------------------------------------------------------------------------

  get #knowsLeader(): boolean {
    const { decided } = this.#cluster;
    const leader = this.#cluster.leader();
    // One that only fetches nothing may lead; the others are still taken for leaders until they are found out.
    if (leader === undefined || (this.frozen.get(leader) ?? "heldBack") !== "heldBack") return false;
    return this.core.every(({ partition }) => {
      const known = partition?.state;
      return (
        known?.leader === decided?.leader && known?.leaderEpoch === decided?.leaderEpoch && partition?.role !== "none"
      );
    });
  }

  /** As the leader knows it too. */
  get #isInSync(): boolean {
    const cluster = this.#cluster;
    const isr = cluster.nodes.get(cluster.leader() ?? -1)?.partition?.leaderState?.isr;
    return this.core.every(
      ({ brokerId }) => cluster.decided?.isr.includes(brokerId) === true && isr?.includes(brokerId) === true,
    );
  }

  get #isCommitted(): boolean {
    const end = this.core[0]?.log?.logEndOffset;
    return this.core.every(({ log, partition }) => log?.logEndOffset === end && partition?.highWatermark === end);
  }

  /** What is still said again does not count. */
  get #replaysMs(): number {
    return Math.max(0, this.#replaysEndUs - this.#cluster.kernel.nowUs) / 1000;
  }

  async #within(id: string, what: string, boundMs: number, condition: () => boolean): Promise<void> {
    const timeoutMs = boundMs + this.#replaysMs;
    try {
      await this.#cluster.until(what, condition, timeoutMs);
    } catch (error) {
      const { failure } = this.#cluster.kernel;
      if (failure !== undefined) throw failure;
      this.#explain();
      throw new Violation(
        id,
        `not in time: ${what}, in ${timeoutMs} ms, with ${[...this.frozen].join(" ")} frozen\n${String(error)}`,
      );
    }
  }

  /** Throws an excuse where there is one: what the core would have to know lies outside of it. */
  #explain(): void {
    const { decided } = this.#cluster;
    if (decided === undefined) return;
    if (decided.isr.length > 0 && decided.isr.every((member) => this.frozen.has(member)))
      throw new ExcusedStall(`all of the ISR ${decided.isr.join()} is frozen`);
    if (decided.isr.length === 0 && !this.core.some(({ brokerId }) => this.#checker.holdsCommitted(brokerId)))
      throw new ExcusedStall("the controller trusts nobody, and nobody in the core has all that was committed");
  }

  /** One batch, sent straight to the leader. A frozen member of the ISR holds it up until it is put out. */
  async #probe(): Promise<void> {
    const cluster = this.#cluster;
    const values = ["probe:0:"];
    const op = this.#history.begin({ type: "send", client: "probe", acks: -1, values });
    const batch = textBatch(values, { id: 1, sequence: 0 });
    const deadlineUs = cluster.kernel.nowUs + (this.#bounds.settleMs + this.#replaysMs) * 1000;
    for (;;) {
      const { error, baseOffset } = await this.#send(batch);
      if (error === "NONE") {
        this.#checker.acknowledged(batch, baseOffset);
        return this.#history.end({ type: "sent", op, tries: "idempotent", outcome: { type: "ok", baseOffset } });
      }
      if (cluster.kernel.nowUs > deadlineUs)
        throw new Violation("L2", `a batch sent to the leader of a core in sync was answered ${error}`);
      await cluster.wait(PROBE_BACK_OFF_MS);
    }
  }

  async #send(batch: Uint8Array): Promise<{ readonly error: string; readonly baseOffset: number }> {
    const cluster = this.#cluster;
    try {
      return await cluster.send(cluster.leader() ?? -1, batch, { acks: -1, timeoutMs: PROBE_MS });
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      return { error: error.code, baseOffset: -1 };
    }
  }

  async #idle(): Promise<void> {
    const cluster = this.#cluster;
    const { network } = cluster;
    await cluster.wait(DRAIN_MS + this.#replaysMs);
    const before = cluster.decided;
    const level = this.#level();
    const { onEvent } = network;
    this.#messages = 0;
    network.onEvent = (event, message) => {
      if (event === "sent") this.#messages += 1;
      onEvent?.(event, message);
    };
    let isr = before?.isr.join();
    let changes = 0;
    for (let looks = IDLE_MS / LOOK_MS; looks > 0; looks -= 1) {
      await cluster.wait(LOOK_MS);
      const now = cluster.decided?.isr.join();
      if (now !== isr) changes += 1;
      isr = now;
    }
    network.onEvent = onEvent;
    if (cluster.decided?.leaderEpoch !== before?.leaderEpoch)
      throw new Violation(
        "L5",
        `leader epoch ${before?.leaderEpoch} became ${cluster.decided?.leaderEpoch} for nothing`,
      );
    const { isrChangesMax, messagesMax } = this.#bounds;
    if (changes > isrChangesMax) throw new Violation("L5", `the ISR changed ${changes} times for nothing`);
    if (this.#messages > messagesMax(IDLE_MS))
      throw new Violation("L5", `${this.#messages} messages in ${IDLE_MS} ms, and nobody wanted anything`);
    // Retention may just have found many segments, on one replica after another, whose files go a little later.
    for (let waits = 0; waits < RETENTION_WAITS_MAX && this.#growth(level) !== undefined; waits += 1)
      await cluster.wait(DEFAULT_LOG_CONFIG.fileDeleteDelayMs + LOOK_MS);
    const growth = this.#growth(level);
    if (growth !== undefined) throw new Violation("L6", `idle, ${growth}`);
    const waiting = this.core.map(({ partition }) => partition?.leaderState?.waitingProduceCount ?? 0);
    if (waiting.some((count) => count > 0)) throw new Violation("L6", `idle, ${waiting.join()} appends wait`);
  }

  /** What is more than it may be. */
  #growth(level: Level): string | undefined {
    const { eventsMax, openFilesMax, requestsMax } = this.#bounds;
    const limits = { events: eventsMax, openFiles: openFilesMax, requests: requestsMax };
    const now = this.#level();
    const names = ["events", "openFiles", "requests"] as const;
    const grown = names.find((name) => now[name] > limits[name] || now[name] > level[name] + limits[name] / 2);
    return grown === undefined ? undefined : `${grown} went from ${level[grown]} to ${now[grown]} of ${limits[grown]}`;
  }

  #level(): Level {
    const sum = (count: (node: Node) => number): number => this.core.reduce((total, node) => total + count(node), 0);
    return {
      events: this.#cluster.kernel.pendingCount,
      openFiles: sum(({ environment }) => environment.files.openFileCount),
      requests: sum(({ peer }) => peer?.calls.size ?? 0),
    };
  }
}
