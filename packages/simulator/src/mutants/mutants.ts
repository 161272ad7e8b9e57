import type { Mutant } from "./mutant.ts";

const FOLLOWER = "packages/replica/src/follower-state.ts";
const LEADER = "packages/replica/src/leader-state.ts";
const PARTITION = "packages/replica/src/partition.ts";
const TRUNCATION = "packages/replica/src/truncation.ts";
const HIGH_WATERMARK = "packages/replica/src/high-watermark.ts";
const LOG_APPENDS = "packages/log/src/log-appends.ts";
const CONTROLLER_STATE = "packages/replica/src/controller/controller-state.ts";

/** The known bugs. Ids M… are those of the list of mutants; P… are plants of our own. */
export const MUTANTS: readonly Mutant[] = [
  {
    id: "M01",
    title: "a follower cuts its log to its own high watermark, and knows no epochs: Kafka before KIP-101",
    edits: [
      {
        file: PARTITION,
        find: `    await this.log.becomeFollower();
    const follower = new FollowerState({`,
        replace: `    await this.log.becomeFollower();
    await this.log.truncateTo(this.#clamped(this.#highWatermark));
    const follower = new FollowerState({`,
      },
      {
        file: FOLLOWER,
        find: `    return this.#log.epochs.at(-1)?.epoch ?? -1;`,
        replace: `    return -1;`,
      },
      {
        file: FOLLOWER,
        find: `    this.#phase = start.log.epochs.length > 0 ? "asking" : "fetching";`,
        replace: `    this.#phase = "fetching";`,
      },
    ],
  },
  {
    id: "M02",
    title: "a leader answers its log end for an epoch that it does not have: Kafka before KIP-279",
    edits: [
      {
        file: PARTITION,
        find: `    return this.log.endOffsetForEpoch(epoch);`,
        replace: `    const answer = this.log.endOffsetForEpoch(epoch);
    return answer.epoch === epoch ? answer : { epoch, endOffset: this.log.logEndOffset };`,
      },
    ],
  },
  {
    id: "M03",
    title: "truncation takes the leader's end offset only, and not the follower's own end of that epoch",
    edits: [
      {
        file: TRUNCATION,
        find: `Math.min(own.endOffset, answer.endOffset, logEndOffset)), isFinal: true }`,
        replace: `Math.min(answer.endOffset, logEndOffset)), isFinal: true }`,
      },
    ],
  },
  {
    id: "M04",
    title: "no second round when the leader answers with an epoch that the follower lacks",
    edits: [
      {
        file: TRUNCATION,
        find: `if (own.epoch !== answer.epoch) return { offset: toOffset(Math.min(own.endOffset, logEndOffset)), isFinal: false };`,
        replace: `if (own.epoch !== answer.epoch) return { offset: toOffset(Math.min(answer.endOffset, logEndOffset)), isFinal: true };`,
      },
    ],
  },
  {
    // Without the fence alone, a fetch of another epoch that passes is one whose log is a front part of the leader's: what is asked about
    // the last fetched epoch sees to that. Only a broker that lost the lead, and all the same kept what the leader after it did not have,
    // could be told something false; but whoever loses the lead leaves the ISR until it has followed.
    id: "M05",
    title:
      "requests carry no epochs: they are neither fenced by the leader's, nor is the last fetched one compared; Kafka before KIP-320",
    edits: [
      {
        file: PARTITION,
        find: `    if (currentLeaderEpoch !== -1 && currentLeaderEpoch < this.leaderEpoch) return "FENCED_LEADER_EPOCH";
    if (currentLeaderEpoch > this.leaderEpoch) return "UNKNOWN_LEADER_EPOCH";
`,
        replace: ``,
      },
      {
        file: TRUNCATION,
        find: `  if (lastFetchedEpoch >= 0) {`,
        replace: `  if (lastFetchedEpoch === Infinity) {`,
      },
    ],
  },
  {
    id: "M06",
    title: "the high watermark counts the committed ISR, not the maximal one",
    edits: [
      {
        file: LEADER,
        find: `      if (remote.isInMaximalIsr || (remote.isEligible && this.#isCaughtUp(remote))) {`,
        replace: `      if (remote.isInIsr) {`,
      },
    ],
  },
  {
    id: "M07",
    title: "a leader begins with what the other replicas told it when it led before",
    edits: [
      {
        file: PARTITION,
        find: `  readonly #moved = new WakeSignal();
`,
        replace: `  readonly #moved = new WakeSignal();
  #told = [];
`,
      },
      {
        file: PARTITION,
        find: `    this.#highWatermark = this.highWatermark;
    this.#role = { type: "none" };
`,
        replace: `    this.#highWatermark = this.highWatermark;
    if (role.type === "leader") this.#told = role.state.replicas;
    this.#role = { type: "none" };
`,
      },
      {
        file: PARTITION,
        find: `    // An ISR of one commits what it has.
`,
        replace: `    for (const { brokerId: replicaId, brokerEpoch, logEndOffset, flushedEndOffset } of this.#told) {
      if (logEndOffset === undefined) continue;
      this.#lead({
        type: "fetched",
        replicaId,
        brokerEpoch,
        fetchOffset: this.#clamped(logEndOffset),
        flushedEndOffset: flushedEndOffset ?? -1,
        logStartOffset: -1,
        leaderEndOffset: log.logEndOffset,
        nowMs: this.#nowMs,
      });
    }
    // An ISR of one commits what it has.
`,
      },
    ],
  },
  {
    id: "M08",
    title: "the high watermark is the leader's own log end",
    edits: [
      {
        file: HIGH_WATERMARK,
        find: `    if (endOffset < lowest) lowest = endOffset;`,
        replace: ``,
      },
    ],
  },
  {
    id: "M09",
    title: "the high watermark of a leader goes down with the lowest of the log ends",
    edits: [
      {
        file: HIGH_WATERMARK,
        find: `  return lowest !== undefined && lowest > current ? lowest : current;`,
        replace: `  return lowest ?? current;`,
      },
    ],
  },
  {
    id: "M10",
    title: "a follower takes the leader's high watermark as it is",
    edits: [
      {
        file: FOLLOWER,
        find: `toOffset(Math.max(logStartOffset, Math.min(leader.highWatermark, logEndOffset)))`,
        replace: `toOffset(Math.max(logStartOffset, leader.highWatermark))`,
      },
    ],
  },
  {
    id: "M11",
    title: "a replica joins the ISR below the start of the leader's epoch",
    edits: [
      {
        file: LEADER,
        find: ` && endOffset >= this.epochStartOffset;`,
        replace: `;`,
      },
    ],
  },
  {
    id: "M12",
    title: "broker epochs are fenced nowhere: neither in a fetch, nor when the controller takes a member in",
    edits: [
      {
        file: "packages/replica/src/replica-state.ts",
        find: `    if (brokerEpoch === -1) return false;
`,
        replace: `    if (brokerEpoch >= -1) return false;
`,
      },
      {
        file: "packages/replica/src/replica-state.ts",
        find: `    return this.#brokerEpoch === -1 || this.#brokerEpoch === broker.brokerEpoch;`,
        replace: `    return true;`,
      },
      {
        file: CONTROLLER_STATE,
        find: `(brokerEpoch === -1 || brokerEpoch === member.brokerEpoch)`,
        replace: `brokerEpoch >= -1`,
      },
    ],
  },
  {
    // A follower's append resolves after its sync, so that its log end and its flushed end are one in all that it asks. To count the
    // wrong one changes nothing unless the sync is not waited for either.
    id: "M14",
    title: "with flush always a follower asks on before its sync, and its log end counts as if it were on the disk",
    edits: [
      {
        file: LEADER,
        find: `    return this.#config.countsFlushedEnds ? remote.flushedEndOffset : remote.logEndOffset;`,
        replace: `    return remote.logEndOffset;`,
      },
      {
        file: LOG_APPENDS,
        find: `    );
    await this.#core.local.commit();
    this.#core.checkUsable();
    this.#core.wakeWaiters();
  }
`,
        replace: `    );
    this.#core.wakeWaiters();
  }
`,
      },
    ],
  },
  {
    id: "M36",
    title:
      "a leader that gets no answer from the controller takes the ISR that it asked for as given, and acknowledges by it",
    edits: [
      {
        file: LEADER,
        find: `      default:
        proposal.attemptsUncertain += 1;
        this.#retry(proposal, effects);`,
        replace: `      default:
        this.#commitIsr(proposedIsr(this.#isrState), effects);`,
      },
    ],
  },
  {
    id: "M41",
    title: "the limit of a read is not looked at when max bytes ends it before the end of the segment",
    edits: [
      {
        file: "packages/log/src/log-read.ts",
        find: `    if (!isLimitBehind) toBytes =`,
        replace: `    if (!isLimitBehind && options.maxBytes >= toBytes - fromBytes) toBytes =`,
      },
      {
        file: "packages/log/src/log-read.ts",
        find: `    toBytes = limit.positionBytes;`,
        replace: `    if (options.maxBytes >= toBytes) toBytes = limit.positionBytes;`,
      },
    ],
  },
  {
    id: "M44",
    title: "a short write counts as a whole one",
    edits: [
      {
        file: "packages/log/src/direct-io.ts",
        find: `    const written = count ?? 0;
`,
        replace: `    if (count !== undefined) return undefined;
    const written = 0;
`,
      },
      {
        file: "packages/log/src/segment.ts",
        find: `    if (count === bytes.length) return true;`,
        replace: `    if (count !== undefined) return true;`,
      },
    ],
  },
  {
    id: "M45",
    title: "a write that finds no room counts as made",
    edits: [
      {
        file: "packages/log/src/local-log.ts",
        find: `    if (failure.retriable) await segment.cutBack({ durably: true });
`,
        replace: `    if (failure.retriable) return undefined as never;
`,
      },
      {
        file: LOG_APPENDS,
        find: `      return this.#core.task(() => local.failWrite(error));`,
        replace: `      if (!String(error).includes("ENOSPC")) return this.#core.task(() => local.failWrite(error));`,
      },
    ],
  },
  {
    id: "M46",
    title: "a produce that has timed out is waited for all the same",
    edits: [
      {
        file: PARTITION,
        find: `        if (this.#role === role) this.#lead({ type: "abandon", id });
`,
        replace: ``,
      },
    ],
  },
  {
    id: "M47",
    title: "a follower asks on and on while an answer is out",
    edits: [
      {
        file: FOLLOWER,
        find: `if (this.#outstanding !== undefined || nowMs < this.#waitUntilMs)`,
        replace: `if (nowMs < this.#waitUntilMs)`,
      },
    ],
  },
  {
    id: "P01",
    title: "a diverging fetch counts as progress of the replica",
    edits: [
      {
        file: PARTITION,
        find: `    if (check.type === "diverging")
`,
        replace: `    if (check.type === "diverging" && fetcher.replicaId >= 0)
      this.#lead({
        type: "fetched",
        replicaId: fetcher.replicaId,
        brokerEpoch: fetcher.brokerEpoch,
        fetchOffset: toOffset(request.fetchOffset),
        flushedEndOffset: parseOffset(request.flushedEndOffset) ?? toOffset(0),
        logStartOffset: parseOffset(request.logStartOffset) ?? toOffset(0),
        leaderEndOffset: seen.logEndOffset,
        nowMs: this.#nowMs,
      });
    if (check.type === "diverging")
`,
      },
      {
        // Without the first guard the diverging fetch is the only one.
        file: FOLLOWER,
        find: `    this.#phase = start.log.epochs.length > 0 ? "asking" : "fetching";`,
        replace: `    this.#phase = "fetching";`,
      },
    ],
  },
  {
    id: "P02",
    title: "a produce with acks all is answered when it is in the leader's log",
    edits: [
      {
        file: PARTITION,
        find: `const error = options.acks === -1 ? await`,
        replace: `const error = options.acks === -2 ? await`,
      },
    ],
  },
  {
    id: "P03",
    title: "a truncation goes one record too deep",
    edits: [
      {
        file: PARTITION,
        find: `await this.log.truncateTo(effect.offset);`,
        replace: `await this.log.truncateTo(toOffset(Math.max(0, effect.offset - 1)));`,
      },
    ],
  },
  {
    id: "P04",
    title: "a truncation leaves one record too much",
    edits: [
      {
        file: PARTITION,
        find: `await this.log.truncateTo(effect.offset);`,
        replace: `await this.log.truncateTo(toOffset(effect.offset + 1));`,
      },
    ],
  },
  {
    id: "P05",
    title: "a parked fetch is not woken by an append",
    edits: [
      {
        file: PARTITION,
        find: `    this.#lead({ type: "logMoved", logStartOffset, logEndOffset, flushedEndOffset });
    this.#moved.wake();`,
        replace: `    this.#lead({ type: "logMoved", logStartOffset, logEndOffset, flushedEndOffset });`,
      },
    ],
  },
  {
    // Counted once more as what it asked for it would do no harm: it is fenced like a new one, and says nothing that was not true. It only
    // keeps the replica caught up for as long as it is parked.
    id: "P06",
    title: "a parked fetch counts as progress when it is answered, to the end of what is sent",
    edits: [
      {
        file: PARTITION,
        find: `      if (isReplica && countsProgress) {`,
        replace: `      if (isReplica) {`,
      },
      {
        file: PARTITION,
        find: `          brokerEpoch: fetcher.brokerEpoch,
          fetchOffset,`,
        replace: `          brokerEpoch: fetcher.brokerEpoch,
          fetchOffset: countsProgress ? fetchOffset : seen.logEndOffset,`,
      },
    ],
  },
  {
    id: "P07",
    title: "the controller elects outside of the ISR",
    edits: [
      {
        file: CONTROLLER_STATE,
        find: `partition.replicas.find((replica) => partition.isr.includes(replica) && isAlive(state, replica)) ?? -1`,
        replace: `partition.replicas.find((replica) => isAlive(state, replica)) ?? -1`,
      },
    ],
  },
  {
    id: "P08",
    title: "the controller does not find out that a replica lost its tail",
    edits: [
      {
        file: CONTROLLER_STATE,
        find: `leave(state, brokerId, { evenIfLast: !isWhole })`,
        replace: `(isWhole ? leave(state, brokerId, { evenIfLast: false }) : state)`,
      },
    ],
  },
  {
    id: "P09",
    title: "a deposed leader's waiting produces are answered as if they were committed",
    edits: [
      {
        file: PARTITION,
        find: `for (const [, answer] of role.pending) answer(error);`,
        replace: `for (const [, answer] of role.pending) answer("NONE");`,
      },
    ],
  },
  {
    id: "P10",
    title: "consumers read up to the log end",
    edits: [
      {
        file: PARTITION,
        find: `limitOffset: isReplica ? seen.logEndOffset : seen.highWatermark,`,
        replace: `limitOffset: seen.logEndOffset,`,
      },
    ],
  },
  {
    id: "P11",
    title: "the high watermark moves under min ISR",
    edits: [
      {
        file: LEADER,
        find: `    if (this.isUnderMinIsr) return;
`,
        replace: ``,
      },
    ],
  },
  {
    id: "P12",
    title: "a shrink lets the high watermark go before the controller has agreed",
    edits: [
      {
        file: "packages/replica/src/isr-state.ts",
        find: `  return state.type === "pendingExpand" ? [...state.isr, state.adding] : state.isr;`,
        replace: `  return state.type === "pendingExpand"
    ? [...state.isr, state.adding]
    : state.isr.filter((brokerId) => state.type !== "pendingShrink" || !state.removing.includes(brokerId));`,
      },
    ],
  },
  {
    id: "P13",
    title: "a follower takes the high watermark of a diverging answer",
    edits: [
      {
        file: FOLLOWER,
        find: `      const answer = { epoch: input.divergingEpoch, endOffset: input.divergingEndOffset };
`,
        replace: `      const answer = { epoch: input.divergingEpoch, endOffset: input.divergingEndOffset };
      this.#leaderOffsets = input;
      this.#takeLeaderOffsets(effects);
`,
      },
      {
        file: FOLLOWER,
        find: `    this.#phase = start.log.epochs.length > 0 ? "asking" : "fetching";`,
        replace: `    this.#phase = "fetching";`,
      },
    ],
  },
  {
    id: "P14",
    title: "a replica that never fetched does not hold the high watermark back",
    edits: [
      {
        file: HIGH_WATERMARK,
        find: `    if (lowest === undefined || endOffset === undefined) return current;`,
        replace: `    if (lowest === undefined) return current;
    if (endOffset === undefined) continue;`,
      },
    ],
  },
  {
    id: "P15",
    title: "an answer to a question of another time is taken",
    edits: [
      {
        file: FOLLOWER,
        find: `if (this.#phase === "fenced" || input.request !== this.#outstanding) return;`,
        replace: `if (this.#phase === "fenced" || this.#phase === "appending" || this.#phase === "truncating") return;`,
      },
    ],
  },
];

/** @throws Error for an id that is not in the list */
export function mutantOf(id: string): Mutant {
  const mutant = MUTANTS.find((other) => other.id === id);
  if (mutant === undefined) throw new Error(`there is no mutant ${id}`);
  return mutant;
}
