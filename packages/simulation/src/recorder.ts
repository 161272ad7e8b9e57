import type {
  ControllerView,
  EpochRange,
  HistoryMessage,
  HistoryStep,
  HistoryViolation,
  RecordedHistory,
  ReplicaView as RecordedReplica,
  StepKind,
} from "@tidemark/console";
import type { MessageEvent, MessageFacts, SimulatedEnvironment } from "@tidemark/simulator";
import { decodeRecords, recordsSection, scanBatch } from "@tidemark/wire";
import type { BatchList, ViewedBatch } from "./replica-view.ts";
import { liveContent, ReplicaView } from "./replica-view.ts";
import { CLIENT_ID, CONTROLLER_ID } from "./cluster.ts";
import type { Cluster, Node, Notice } from "./cluster.ts";
import { parseFailure } from "./rules.ts";
import type { Line } from "./wording.ts";
import { sameDecision, wordsOfDecision, wordsOfNotice, wordsOfReplica, wordsOfViolation } from "./wording.ts";

/** Records whose texts are kept: of logs so short that a picture can show each record. */
const VALUES_MAX = 24;
/** Of the text of a record. */
const VALUE_CHARS_MAX = 12;
/** Kinds of messages told apart in one step. */
const MESSAGES_MAX = 12;
/** Records that clients were told are safe, remembered for the picture. */
const ACKNOWLEDGED_MAX = 12;

/** Where several things happen in one event, the first of these names the step. */
const WEIGHTS: readonly StepKind[] = [
  "violation",
  "truncation",
  "fault",
  "decision",
  "network",
  "role",
  "client",
  "append",
  "highWatermark",
  "note",
];

const LOST: ReadonlySet<MessageEvent> = new Set(["dropped", "cut", "overflowed", "refused"]);

const UNKNOWN: RecordedReplica = {
  process: "down",
  role: "none",
  leader: -1,
  leaderEpoch: -1,
  logStartOffset: 0,
  highWatermark: -1,
  flushedEndOffset: 0,
  logEndOffset: 0,
  isr: [],
  ranges: [],
  values: [],
};

/** One replica as the recorder knows it. */
interface Watched {
  readonly node: Node;
  view: ReplicaView;
  log: unknown;
  values: string[];
  state: RecordedReplica;
}

/**
 * Watches a cluster from outside and writes down what it sees as a history for `renderHistory`.
 *
 * It looks before each event, hence at all that the one before has led to, and draws, schedules and sends nothing: a run is the same with
 * it and without. Made after a `Checker`, it looks first, so that the state which breaks a rule is in the history.
 */
export class Recorder {
  /** Called after each look that found something new, before anybody else looks. */
  onLook: (() => void) | undefined;
  readonly #cluster: Cluster;
  readonly #watched: readonly Watched[];
  readonly #steps: HistoryStep[] = [];
  readonly #violations: HistoryViolation[] = [];
  readonly #messages = new Map<string, HistoryMessage>();
  readonly #stopping = new Set<number>();
  /** Words of notices that the next look tells, and states that came without words. */
  readonly #told: Line[] = [];
  #moved: Readonly<Record<string, RecordedReplica>> = {};
  #acknowledged: readonly string[] = [];
  #toldAcknowledged: readonly string[] = this.#acknowledged;
  #controller: ControllerView | undefined;
  #toldController: ControllerView | undefined;
  #isOrdered = false;
  #cuts = "";
  #truncations = 0;
  #isOver = false;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.#watched = [...cluster.nodes.values()].map((node) => ({
      node,
      view: new ReplicaView(),
      log: undefined,
      values: [],
      state: UNKNOWN,
    }));
    const { kernel, network } = cluster;
    const before = kernel.onEvent;
    kernel.onEvent = () => {
      this.#look();
      before?.();
    };
    network.onEvent = (event, message) => this.#message(event, message);
    cluster.onNotice = (notice) => this.#notice(notice);
    const replicas = Object.fromEntries(this.#watched.map(({ node }) => [node.brokerId, UNKNOWN]));
    const text = "Nothing runs yet.";
    this.#steps.push({ timeUs: kernel.nowUs, kind: "fault", text, replicas });
  }

  /** Replicas as they were at the last look, by broker id. */
  get replicas(): ReadonlyMap<number, RecordedReplica> {
    return new Map(this.#watched.map(({ node, state }) => [node.brokerId, state]));
  }

  get controller(): ControllerView | undefined {
    return this.#controller;
  }

  /** Whether the leader that the controller named last was not in sync: somebody has ordered it. */
  get isOrdered(): boolean {
    return this.#isOrdered;
  }

  /** Batches of a replica's log as they lay on its disk at the last look. */
  batches(brokerId: number): BatchList | undefined {
    return this.#watched.find(({ node }) => node.brokerId === brokerId)?.view;
  }

  /** The cut before the last look, if there was one. */
  lastCut(brokerId: number): readonly [fromOffset: number, toOffset: number] | undefined {
    for (let at = this.#steps.length - 1; at > 0; at -= 1) {
      const step = this.#steps[at];
      const after = step?.replicas?.[brokerId];
      if (step?.kind !== "truncation" || after === undefined) continue;
      const earlier = this.#steps.slice(0, at).findLast(({ replicas }) => replicas?.[brokerId] !== undefined);
      return [after.logEndOffset, earlier?.replicas?.[brokerId]?.logEndOffset ?? after.logEndOffset];
    }
    return undefined;
  }

  /** A rule was found broken, as of the last look. */
  violated(violation: Omit<HistoryViolation, "step">): void {
    this.#violations.push({ ...violation, step: this.#steps.length });
    this.#add([{ kind: "violation", text: `Rule ${violation.id}: ${violation.text}` }], {});
  }

  /** Everything that was seen. */
  history(words: Pick<RecordedHistory, "title" | "summary" | "command">): RecordedHistory {
    const { options, nodes } = this.#cluster;
    const facts: [string, string][] = [
      ["seed", String(options.seed)],
      ["brokers", String(nodes.size)],
      ["min.insync.replicas", String(options.minInsyncReplicas ?? 2)],
      ["flush", options.log?.flush ?? "none"],
      ["virtual time", `${(this.#cluster.kernel.nowUs / 1e6).toFixed(1)} s`],
      ["steps", String(this.#steps.length)],
    ];
    return {
      ...words,
      seed: options.seed,
      facts,
      brokers: [...nodes.keys()],
      controllerId: CONTROLLER_ID,
      clientId: CLIENT_ID,
      steps: this.#isLong() ? this.#steps.map(withoutValues) : this.#steps,
      violations: this.#violations,
      omitted: "",
    };
  }

  /** Whether a log has outgrown what is drawn record by record. */
  #isLong(): boolean {
    const replicas = this.#steps.flatMap((step) => Object.values(step.replicas ?? {}));
    return replicas.some(({ logEndOffset }) => logEndOffset > VALUES_MAX);
  }

  // ---- looking -------------------------------------------------------------------------------------------------------

  #look(): void {
    if (this.#isOver) return;
    const lines = this.#told.splice(0);
    let replicas = this.#moved;
    for (const watched of this.#watched) {
      const before = watched.state;
      const after = this.#observe(watched);
      if (isSame(before, after)) continue;
      watched.state = after;
      replicas = { ...replicas, [watched.node.brokerId]: after };
      lines.push(...wordsOfReplica(watched.node.brokerId, before, after, this.#causeOf(watched.node.brokerId, after)));
    }
    this.#truncations = this.#cluster.truncations.length;
    const controller = this.#decision();
    if (controller !== undefined) {
      lines.push(...wordsOfDecision(this.#controller, controller));
      if (controller.leader >= 0 && controller.leaderEpoch !== this.#controller?.leaderEpoch)
        this.#isOrdered = this.#controller?.isr.includes(controller.leader) === false;
      this.#controller = controller;
    }
    const cuts = this.#changedCuts();
    if (cuts !== undefined)
      lines.push({
        kind: "network",
        text: cuts.length === 0 ? "The network is whole again." : `The network is cut: ${wordsOfCuts(cuts)}.`,
      });
    this.#moved = replicas;
    if (lines.length === 0) return;
    this.#moved = {};
    this.#add(lines, {
      ...(Object.keys(replicas).length === 0 ? {} : { replicas }),
      ...(this.#controller === undefined || this.#controller === this.#toldController
        ? {}
        : { controller: this.#controller }),
      ...(cuts === undefined ? {} : { cuts }),
      ...(this.#acknowledged === this.#toldAcknowledged ? {} : { acknowledged: this.#acknowledged }),
    });
    this.#toldController = this.#controller;
    this.#toldAcknowledged = this.#acknowledged;
    this.onLook?.();
  }

  #observe(watched: Watched): RecordedReplica {
    const { node } = watched;
    const { partition, log } = node;
    this.#followLog(watched);
    const { state, view, values } = watched;
    const process = processOf(node);
    const isSameLog = view.endOffset === state.logEndOffset && view.batches.at(-1)?.epoch === state.ranges.at(-1)?.[2];
    return {
      process,
      role: partition?.role ?? "none",
      leader: partition?.role === "leader" ? node.brokerId : (partition?.followerState?.leaderId ?? -1),
      leaderEpoch: partition?.leaderEpoch ?? -1,
      logStartOffset: log?.logStartOffset ?? state.logStartOffset,
      highWatermark: partition?.highWatermark ?? -1,
      flushedEndOffset: log?.flushedEndOffset ?? state.flushedEndOffset,
      logEndOffset: view.endOffset,
      isr: partition?.leaderState?.isrState.isr ?? [],
      ranges: isSameLog ? state.ranges : rangesOf(view),
      values: isSameLog || values.join("\n") === state.values.join("\n") ? state.values : [...values],
    };
  }

  /** Of a process that is down the disk is shown as it was last seen. */
  #followLog(watched: Watched): void {
    const { node, log: before } = watched;
    const { log } = node;
    if (log === undefined) return;
    if (log !== before) {
      watched.view = new ReplicaView();
      watched.values = [];
    }
    watched.log = log;
    const { view, values } = watched;
    if (log.logEndOffset === view.endOffset) return;
    if (log.logEndOffset < view.endOffset) {
      view.cutTo(log.logEndOffset);
      view.endAt(log.logEndOffset);
    }
    view.followStart(log);
    values.splice(view.endOffset);
    // What was deleted before anybody looked.
    while (values.length < Math.min(view.endOffset, VALUES_MAX)) values.push("");
    for (const batch of view.readTo(log.logEndOffset, log, node.environment))
      if (values.length < VALUES_MAX) values.push(...textsOf(node.environment, batch));
    values.splice(VALUES_MAX);
  }

  #causeOf(brokerId: number, after: RecordedReplica): string | undefined {
    const reports = this.#cluster.truncations.slice(this.#truncations);
    return reports.find((report) => report.brokerId === brokerId && report.toOffset === after.logEndOffset)?.cause;
  }

  /** `undefined` unless it is new. */
  #decision(): ControllerView | undefined {
    const { decided, controller } = this.#cluster;
    const known = this.#controller;
    if (decided === undefined) {
      if (controller !== undefined || known === undefined || !known.isUp) return undefined;
      return { ...known, isUp: false };
    }
    const { leader, leaderEpoch, isr } = decided;
    const now: ControllerView = { isUp: true, leader, leaderEpoch, isr };
    return known !== undefined && sameDecision(known, now) ? undefined : now;
  }

  #changedCuts(): readonly string[] | undefined {
    const cuts = [...this.#cluster.network.cuts];
    const joined = cuts.join(" ");
    if (joined === this.#cuts) return undefined;
    this.#cuts = joined;
    return cuts;
  }

  // ---- what is told --------------------------------------------------------------------------------------------------

  #notice(notice: Notice): void {
    if (this.#isOver) return;
    this.#look();
    if (notice.type === "stop") {
      this.#isOver = true;
      return;
    }
    const line = wordsOfNotice(notice, (brokerId) => this.#stopping.delete(brokerId));
    if (notice.type === "shutDown") this.#stopping.add(notice.brokerId);
    if (notice.type === "produced" && notice.error === "NONE" && notice.acks === -1) {
      const records = notice.values.map((value, delta) => `${notice.baseOffset + delta}:${shorten(value)}`);
      this.#acknowledged = [...this.#acknowledged, ...records].slice(-ACKNOWLEDGED_MAX);
    }
    if (line === undefined) return;
    // What a person tells stands alone; all else is told together with what it leads to at once.
    if (notice.type === "told") this.#add([line], {});
    else this.#told.push(line);
  }

  #message(event: MessageEvent, { from, to, kind, type }: MessageFacts): void {
    if (event !== "delivered" && !LOST.has(event)) return;
    const fate = event === "delivered" ? "delivered" : "lost";
    const key = `${from}>${to}/${kind}/${type}/${fate}`;
    const known = this.#messages.get(key);
    if (known === undefined && this.#messages.size >= MESSAGES_MAX) return;
    this.#messages.set(key, { from, to, kind, type, fate, count: (known?.count ?? 0) + 1 });
  }

  #add(lines: readonly Line[], changes: Omit<HistoryStep, "timeUs" | "kind" | "text">): void {
    const kinds = lines.map(({ kind }) => kind);
    const kind = WEIGHTS.find((one) => kinds.includes(one)) ?? "role";
    const text = lines.map((line) => line.text).join("\n");
    const messages = [...this.#messages.values()];
    this.#messages.clear();
    this.#steps.push({
      timeUs: this.#cluster.kernel.nowUs,
      kind,
      text,
      ...changes,
      ...(messages.length === 0 ? {} : { messages }),
    });
  }
}

/**
 * A failure of a seed as a violation with its place: which replicas, which records.
 * @param committed what was ever committed, by the checker
 */
export function violationOf(failure: string, recorder: Recorder, committed: BatchList): Omit<HistoryViolation, "step"> {
  const { id, what, rule } = parseFailure(failure);
  const named = [...what.matchAll(/\b(?:broker|but|by|and) (\d+)\b/gu)].map(([, brokerId]) => Number(brokerId));
  const replicas = [...new Set(named)].filter((brokerId) => recorder.replicas.has(brokerId));
  return {
    id,
    rule: rule.rule,
    meaning: rule.meaning,
    text: wordsOfViolation(what),
    replicas,
    range: rangeOf(id, what, replicas, recorder, committed),
  };
}

function rangeOf(
  id: string,
  what: string,
  replicas: readonly number[],
  recorder: Recorder,
  committed: BatchList,
): HistoryViolation["range"] {
  const [first = -1, second] = replicas;
  if (id === "S7" || id === "S8") return recorder.lastCut(first);
  const named = /\b(\d+)@\d+|\b(?:at|acknowledged at) (\d+)\b/u.exec(what);
  if (named !== null) {
    const offset = Number(named[1] ?? named[2]);
    return [offset, offset + 1];
  }
  const [, recovered, found] = /everything below (\d+), and starts with (\d+)/u.exec(what) ?? [];
  if (recovered !== undefined) return [Math.min(Number(found), Number(recovered)), Number(recovered)];
  // A replica is compared with what was committed, or with the leader whose high watermark moved.
  const other = id === "S5" ? recorder.batches(first) : committed;
  const own = recorder.batches(id === "S5" ? (second ?? first) : first);
  const [, watermark] = /high watermark (\d+)/u.exec(what) ?? [];
  const toOffset = watermark === undefined ? committed.endOffset : Number(watermark);
  if (own === undefined || other === undefined) return undefined;
  const same = other.batches.find(({ baseOffset, chain }) => own.batchAt(baseOffset)?.chain !== chain);
  const fromOffset = same?.baseOffset ?? Math.min(own.endOffset, other.endOffset);
  return fromOffset < toOffset ? [fromOffset, toOffset] : undefined;
}

function withoutValues(step: HistoryStep): HistoryStep {
  if (step.replicas === undefined) return step;
  const replicas = Object.entries(step.replicas).map(([id, replica]) => [id, { ...replica, values: [] }] as const);
  return { ...step, replicas: Object.fromEntries(replicas) };
}

function processOf(node: Node): RecordedReplica["process"] {
  if (node.clock === undefined) return "down";
  if (node.clock.isPaused) return "paused";
  return node.manager === undefined ? "starting" : "up";
}

/** Whether nothing moved that is worth a step; flushed ends come along with the next one. */
function isSame(before: RecordedReplica, after: RecordedReplica): boolean {
  return (
    before.process === after.process &&
    before.role === after.role &&
    before.leader === after.leader &&
    before.leaderEpoch === after.leaderEpoch &&
    before.highWatermark === after.highWatermark &&
    before.logStartOffset === after.logStartOffset &&
    before.logEndOffset === after.logEndOffset &&
    before.ranges === after.ranges &&
    before.values === after.values &&
    before.isr.join() === after.isr.join()
  );
}

function rangesOf({ batches, startOffset }: BatchList): EpochRange[] {
  const ranges: EpochRange[] = [];
  let fromOffset = startOffset;
  for (const [at, { epoch, lastOffset }] of batches.entries()) {
    if (batches[at + 1]?.epoch === epoch) continue;
    ranges.push([fromOffset, lastOffset + 1, epoch]);
    fromOffset = lastOffset + 1;
  }
  return ranges;
}

function textsOf(environment: SimulatedEnvironment, { path, positionBytes }: ViewedBatch): string[] {
  const scan = scanBatch(liveContent(environment, path), positionBytes);
  if (scan.type !== "batch") return [];
  const records = decodeRecords(scan.header, recordsSection(liveContent(environment, path), scan.header));
  return [...records].map(({ value }) => shorten(new TextDecoder().decode(value ?? new Uint8Array(0))));
}

function shorten(text: string): string {
  return text.length <= VALUE_CHARS_MAX ? text : `${text.slice(0, VALUE_CHARS_MAX - 1)}…`;
}

function wordsOfCuts(cuts: readonly string[]): string {
  const named = cuts.map((cut) => {
    const [ends = "", kind] = cut.split("/");
    const [from, to] = ends.split(">").map((id) => (Number(id) === CONTROLLER_ID ? "the controller" : id));
    return `no ${kind ?? "message"} from ${from} reaches ${to}`;
  });
  return named.join("; ");
}
