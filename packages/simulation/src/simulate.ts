import { SimulatedRandom, startMessageSwarm } from "@tidemark/simulator";
import { Checker, Violation } from "./checker.ts";
import { Consumer, Producer } from "./client.ts";
import { ClientHistory } from "./client-history.ts";
import { Cluster, NAME, recordsOf } from "./cluster.ts";
import type { Node } from "./cluster.ts";
import { Faults, NO_HANDLE } from "./faults.ts";
import { checkFinalFiles } from "./final-files.ts";
import { checkFinalLog } from "./final-log.ts";
import { ExcusedStall, Liveness } from "./liveness.ts";
import type { Plan } from "./plan.ts";
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
    faults: Object.fromEntries(run.faults.counts),
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
  readonly faults: Faults;
  leaderEpochs = 0;
  readonly #plan: Plan;
  #isDone = false;
  /** While it lasts. */
  #liveness: Liveness | undefined;

  constructor(plan: Plan) {
    this.#plan = plan;
    this.cluster = new Cluster(plan.cluster);
    this.checker = new Checker(this.cluster);
    this.faults = new Faults(this.cluster, this.checker);
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
      if (MESSAGE_FAULTS.has(event)) this.faults.count(event);
    };
    const startMs = cluster.kernel.nowUs / 1000;
    for (const fault of this.#plan.faults) {
      await cluster.wait(Math.max(0, startMs + fault.atMs - cluster.kernel.nowUs / 1000));
      this.faults.strike(fault);
    }
    await cluster.wait(Math.max(0, startMs + this.#plan.durationMs - cluster.kernel.nowUs / 1000));
    this.faults.end();
    this.pace.end();
    swarm?.stop();
    for (const [name, count] of swarm?.counts ?? []) this.faults.counts.set(name, count);
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

  // ---- the end -------------------------------------------------------------------------------------------------------

  /** With some of the brokers out for ever; then they come back too. */
  async #demandLiveness(liveness: Liveness, stopClients: () => Promise<void>): Promise<void> {
    try {
      await liveness.demand(stopClients);
      this.faults.count(`${liveness.frozen.size} frozen`);
    } catch (error) {
      if (!(error instanceof ExcusedStall)) throw error;
      this.faults.count("excused stall");
    }
    this.#liveness = undefined;
    await this.#repair();
  }

  /** Heals everything, but whom the plan freezes for ever. */
  async #repair(): Promise<void> {
    const { cluster } = this;
    cluster.network.heal();
    this.faults.undo();
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
          this.faults.isKnownBroken(node),
        );
      if (node.brokenDisk !== undefined || this.faults.hasGivenUp(node)) await this.faults.startAnew(node.brokerId);
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
      this.faults.count("unclean election");
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
