import type { PartitionLog } from "@tidemark/log";
import type { Partition } from "@tidemark/replica";
import type { PartitionState } from "@tidemark/wire";
import { scanBatch } from "@tidemark/wire";
import type { Cluster, Node } from "./cluster.ts";
import { BatchList, isDurable, ReplicaView } from "./replica-view.ts";
import type { ViewedBatch } from "./replica-view.ts";
import { hasFailedLog, hasMoved, nameOf, roleOf } from "./seen-replica.ts";
import type { Seen } from "./seen-replica.ts";

/** A rule of the protocol was broken. `id` names it as the list below does. */
export class Violation extends Error {
  override readonly name = "Violation";
  readonly id: string;

  constructor(id: string, message: string) {
    super(`${id}: ${message}`);
    this.id = id;
  }
}

/** A broker's questions that may be out at a time: one to a leader, one for the cluster state, some about its ISR or its registration. */
const REQUESTS_MAX = 8;

const SECOND_US = 1_000_000;

/** The longest time that an append is waited for (`planOf`), with some for its write. */
const PRODUCE_US_MAX = 10_000_000;

/**
 * Looks at all replicas and the controller between any two events, from outside: logs are read from the simulated disks.
 *
 * | id | rule |
 * |---|---|
 * | S1 | a record, once below a leader's high watermark, is the same for ever and everywhere below a high watermark |
 * | S2 | the same offset and epoch is the same batch with the same history, on all replicas, at all times |
 * | S3 | one leader an epoch; epochs of a log, of a replica, of the epoch cache only grow |
 * | S4 | members of the controller's ISR hold all that was ever committed |
 * | S5 | a high watermark that moves is covered by the maximal ISR, and by no fewer than min.insync.replicas |
 * | S6 | log start <= high watermark <= log end; a leader's high watermark never falls, nor does a start that was answered for |
 * | S7 | nothing below the high watermark that a replica knows is cut |
 * | S8 | nothing that the leader has is cut |
 * | S9 | the epoch cache names the epoch of every batch |
 * | S12 | with flush `always`, what is acknowledged is on the disks of min.insync.replicas |
 * | S13 | a start finds what a killed process had written, and what a lost machine had synced |
 * | S14 | once a write or sync of a segment has failed the log takes nothing in, and its broker neither leads nor follows |
 * | S15 | a consumer reads from where it asks |
 * | S16 | what it reads is committed |
 * | S19 | who joins the ISR has reached the start of the leader's epoch |
 * | S22 | what waits has a bound: a broker's questions, a leader's appends; nobody gives up |
 * | S23 | the leader is in the ISR; partition epochs grow one by one |
 * | S25 | a leader never takes a replica to be further than it is |
 */
export class Checker {
  readonly committed = new BatchList();
  readonly #cluster: Cluster;
  readonly #seen: Seen[];
  readonly #chains = new Map<string, number>();
  readonly #leaders = new Map<number, number>();
  /** The last epoch in which the controller had this broker lead alone. */
  readonly #aloneEpochs = new Map<number, number>();
  #decided: PartitionState | undefined;
  /** The highest log start of any replica so far: whoever ends below it may be told to begin anew there. */
  #logStartMax = 0;
  #knowsProduces = false;
  /** Looks that found something new. */
  checks = 0;
  /**
   * Times that a machine came back without the unsynced tail of what was committed while the controller held it for a member of the
   * ISR, and would have named it leader at need.
   */
  lostTailReturns = 0;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.#seen = [...cluster.nodes.values()].map((node) => ({
      node,
      view: new ReplicaView((offset) => this.committed.chainAt(offset)),
      log: undefined,
      logStartOffset: 0,
      deletedTo: 0,
      failedEndOffset: 0,
      role: undefined,
      leading: undefined,
      highWatermark: 0,
      isrSize: 0,
      leaderEpoch: -1,
      partitionEpoch: -1,
      lostTail: false,
      hasLost: false,
      lostInEpoch: -1,
      floor: 0,
      syncedFloor: 0,
      produces: [],
      pausedUs: 0,
    }));
    cluster.kernel.onEvent = () => this.check();
  }

  /** Digests of the logs as they lie on the disks, for comparing them. */
  chains(): readonly (number | undefined)[] {
    return this.#seen.map(({ view }) => view.chainAt(view.endOffset));
  }

  /** Whether a fault may hit this broker: another member of the ISR holds all that was committed, or nothing is lost. */
  isAdmissible(brokerId: number, losesTail: boolean): boolean {
    const { decided } = this.#cluster;
    if (decided === undefined) return false;
    const holders = decided.isr.filter((member) => this.#holdsCommitted(this.#of(member)));
    const others = holders.filter((member) => member !== brokerId);
    if (others.length > 0) return true;
    return !losesTail && decided.isr.length === 1 && decided.isr[0] === brokerId;
  }

  /** Whether a broker's log has all that was ever committed. */
  holdsCommitted(brokerId: number): boolean {
    return this.#holdsCommitted(this.#of(brokerId));
  }

  /** To be called with every write or sync that fails, before `brokenDisk` tells so. */
  diskFails(brokerId: number, losesBytes: boolean): void {
    if (losesBytes) this.crashes(brokerId, true);
    const seen = this.#of(brokerId);
    seen.failedEndOffset = seen.node.log?.logEndOffset ?? 0;
  }

  /** To be called with every crash, before it. */
  crashes(brokerId: number, losesTail: boolean): void {
    const seen = this.#of(brokerId);
    const isSafe = this.#cluster.options.log?.flush === "always";
    const { log, brokenDisk } = seen.node;
    // What the sync has lost was looked at when it failed.
    if (brokenDisk === "lost" && isSafe) return;
    if (log !== undefined) {
      this.#followStart(seen, log);
      // A cut may be under way that the log does not tell of yet.
      const presentEnd = seen.view.endIn(seen.node.environment);
      if (presentEnd < seen.view.endOffset && brokenDisk !== "lost")
        this.#wasCut(seen, seen.view.cutTo(presentEnd), presentEnd);
      seen.syncedFloor = Math.min(log.flushedEndOffset, seen.view.endOffset);
    }
    if ((losesTail || brokenDisk === "lost") && !isSafe) {
      seen.lostTail = true;
      seen.hasLost = true;
      seen.lostInEpoch = Math.max(
        seen.node.manager?.brokerEpoch ?? -1,
        this.#registrationOf(seen.node)?.brokerEpoch ?? -1,
      );
      seen.floor = 0;
    } else if (losesTail) seen.floor = seen.syncedFloor;
    // While it opens its logs it adds nothing to what the crash before has left.
    else if (log !== undefined) seen.floor = seen.view.endOffset;
  }

  /** A broker has answered that the records below its log start are deleted. */
  deletedRecords(brokerId: number, logStartOffset: number): void {
    const seen = this.#of(brokerId);
    seen.deletedTo = Math.max(seen.deletedTo, logStartOffset);
  }

  /** An acknowledgement by all has arrived. */
  acknowledged(batch: Uint8Array, baseOffset: number): void {
    const scan = scanBatch(batch, 0);
    if (scan.type !== "batch") throw new Error("a client sends whole batches");
    const committed = this.committed.batchAt(baseOffset);
    if (committed?.crc !== scan.header.crc)
      throw new Violation("S1", `acknowledged at ${baseOffset}, but not committed there`);
    if (this.#cluster.options.log?.flush !== "always") return;
    const copies = this.#seen.filter(({ node, view }) => {
      // Records were deleted while the answer was on its way.
      if (view.startOffset > committed.lastOffset) return true;
      const batchHere = view.batchAt(baseOffset);
      return batchHere?.crc === committed.crc && isDurable(node.environment, batchHere);
    });
    if (copies.length < (this.#cluster.options.minInsyncReplicas ?? 2))
      throw new Violation("S12", `acknowledged at ${baseOffset} with ${copies.length} durable copies`);
  }

  /**
   * A consumer that asked from an offset on was given these bytes, and the high watermark.
   * @returns where to go on
   */
  consumed(bytes: Uint8Array, fromOffset: number, highWatermark: number): number {
    let endOffset: number | undefined;
    for (let at = 0; at < bytes.length;) {
      const scan = scanBatch(bytes, at);
      if (scan.type !== "batch") break;
      const { baseOffset, lastOffset, crc, partitionLeaderEpoch } = scan.header;
      const committed = this.committed.batchAt(baseOffset);
      if (committed?.crc !== crc || committed.epoch !== partitionLeaderEpoch)
        throw new Violation(
          "S16",
          `a consumer read ${baseOffset}@${partitionLeaderEpoch}, which is not committed (but ${committed?.baseOffset}@${committed?.epoch} of ${this.committed.endOffset})`,
        );
      if (endOffset === undefined && !(baseOffset <= fromOffset && fromOffset <= lastOffset))
        throw new Violation(
          "S15",
          `a consumer asked for ${fromOffset}, and was given ${baseOffset} to ${lastOffset} first`,
        );
      at += scan.header.sizeInBytes;
      endOffset = lastOffset + 1;
    }
    if (endOffset === undefined && fromOffset < highWatermark)
      throw new Violation("S15", `a consumer asked for ${fromOffset} of ${highWatermark}, and was given nothing`);
    return endOffset ?? Math.max(0, highWatermark);
  }

  /** A produce request has reached a broker. Whoever tells of one tells of all, and none waits longer than `PRODUCE_US_MAX`. */
  produceArrived(brokerId: number): void {
    this.#knowsProduces = true;
    const { produces } = this.#of(brokerId);
    const { nowUs } = this.#cluster.kernel;
    produces.push(nowUs);
    while ((produces[0] ?? nowUs) < nowUs - PRODUCE_US_MAX) produces.shift();
  }

  check(): void {
    let isNew = this.#cluster.decided !== this.#decided;
    for (const seen of this.#seen) {
      const { held } = seen.node;
      this.#checkBounds(seen, held.partition);
      this.#logStartMax = Math.max(this.#logStartMax, held.log?.logStartOffset ?? 0);
      if (hasMoved(seen, held)) isNew = true;
    }
    if (isNew) this.#checkAll();
    for (const seen of this.#seen) {
      seen.isrSize = seen.node.held.partition?.leaderState?.isr.length ?? 0;
      if (seen.lostTail && this.#isFoundOut(seen)) seen.lostTail = false;
    }
  }

  #checkAll(): void {
    this.checks += 1;
    for (const seen of this.#seen) this.#followLog(seen);
    for (const seen of this.#seen) this.#checkReplica(seen);
    for (const seen of this.#seen) this.#checkBelowHighWatermark(seen);
    this.#checkController();
    this.#checkRemotes();
  }

  // ---- logs ----------------------------------------------------------------------------------------------------------

  #followLog(seen: Seen): void {
    const { view } = seen;
    const { log } = seen.node;
    if (log === undefined) {
      seen.log = undefined;
      return;
    }
    if (log !== seen.log) this.#startedOn(seen, log);
    else if (log.logStartOffset < seen.logStartOffset && view.batches.length > 0)
      throw new Violation("S6", `${nameOf(seen)}: log start fell from ${seen.logStartOffset} to ${log.logStartOffset}`);
    seen.log = log;
    seen.logStartOffset = log.logStartOffset;
    if (hasFailedLog(seen)) {
      if (log.logEndOffset > seen.failedEndOffset)
        throw new Violation("S14", `${nameOf(seen)} appends up to ${log.logEndOffset}, on a disk that has failed`);
      // The failure came upon a cut, which the log does not tell of any more.
      if (log.logEndOffset > view.endOffset) return;
    }
    if (log.logEndOffset < view.endOffset) {
      this.#wasCut(seen, view.cutTo(log.logEndOffset), log.logEndOffset);
      // Its leader says of an epoch that it has nothing of any more that it ends where its own log begins.
      if (log.logEndOffset <= this.#logStartMax) view.endAt(log.logEndOffset);
    }
    this.#followStart(seen, log);
    this.#readOn(seen, log);
    if (view.endOffset !== log.logEndOffset)
      throw new Violation("S6", `${nameOf(seen)}: log end ${log.logEndOffset} is inside a batch`);
  }

  /** Its first segments may be deleted, or it may have begun anew at a start that some leader told. */
  #followStart(seen: Seen, log: PartitionLog): void {
    const { view } = seen;
    view.followStart(log);
    if (view.startOffset > this.#logStartMax)
      throw new Violation(
        "S7",
        `${nameOf(seen)}: its first batch is at ${view.startOffset}, and no log start was above ${this.#logStartMax}`,
      );
  }

  #readOn(seen: Seen, log: PartitionLog): void {
    const { view, node } = seen;
    let before = view.batches.at(-1);
    const batches = view.readTo(log.logEndOffset, log, node.environment);
    if (batches.length === 0) return;
    const { epochEntries, logStartOffset } = log;
    for (const batch of batches) {
      this.#checkBatch(seen, batch, before, { epochEntries, logStartOffset });
      before = batch;
    }
    const isGrowing = epochEntries.every(({ epoch, startOffset }, at) => {
      const last = epochEntries[at - 1];
      return last === undefined || (epoch > last.epoch && startOffset > last.startOffset);
    });
    if (!isGrowing) throw new Violation("S3", `${nameOf(seen)}: epoch cache ${JSON.stringify(epochEntries)}`);
  }

  #startedOn(seen: Seen, log: PartitionLog): void {
    const { view, floor } = seen;
    this.#logStartMax = Math.max(this.#logStartMax, log.logStartOffset);
    if (log.logStartOffset < seen.deletedTo)
      throw new Violation(
        "S6",
        `${nameOf(seen)} had deleted everything below ${seen.deletedTo}, and starts with ${log.logStartOffset}`,
      );
    const before = view.chainAt(floor);
    view.cutTo(0);
    this.#followStart(seen, log);
    this.#readOn(seen, log);
    // It may have been about to begin anew, at a start above all that it had.
    if (view.startOffset <= floor && view.chainAt(floor) !== before)
      throw new Violation("S13", `${nameOf(seen)} had everything below ${floor}, and starts with ${log.logEndOffset}`);
    seen.floor = 0;
    const isInSync = this.#cluster.decided?.isr.includes(seen.node.brokerId) === true;
    if (seen.lostTail && isInSync && seen.view.endOffset < this.committed.endOffset) this.lostTailReturns += 1;
  }

  #wasCut(seen: Seen, gone: readonly ViewedBatch[], toOffset: number): void {
    const endOffset = (gone.at(-1)?.lastOffset ?? toOffset) + 1;
    // A leader begins above all that it had, or an empty log begins at the batch that holds its start.
    if (endOffset <= this.#logStartMax || gone.length === 0) return;
    if (toOffset < seen.highWatermark)
      throw new Violation("S7", `${nameOf(seen)} cut to ${toOffset}, below its high watermark ${seen.highWatermark}`);
    const { partition } = seen.node;
    if (partition?.leaderState !== undefined)
      throw new Violation("S8", `${nameOf(seen)} leads, and cut to ${toOffset}`);
    const follower = partition?.followerState;
    // One event may bring both, in this order: the end of a cut that an earlier leader asked for, and the role under the next one.
    if (follower === undefined || follower !== seen.role) return;
    const leader = this.#of(follower.leaderId);
    const leading = leader.node.partition?.leaderState;
    if (leading?.leaderEpoch !== follower.leaderEpoch) return;
    const lost = gone.find(({ baseOffset, chain }) => leader.view.batchAt(baseOffset)?.chain === chain);
    if (lost !== undefined)
      throw new Violation("S8", `${nameOf(seen)} cut ${lost.baseOffset}@${lost.epoch}, which its leader has`);
  }

  #checkBatch(
    seen: Seen,
    batch: ViewedBatch,
    before: ViewedBatch | undefined,
    { logStartOffset, epochEntries }: Pick<PartitionLog, "logStartOffset" | "epochEntries">,
  ): void {
    const { baseOffset, epoch, chain } = batch;
    const key = `${baseOffset}@${epoch}`;
    const known = this.#chains.get(key);
    if (known === undefined) this.#chains.set(key, chain);
    else if (known !== chain)
      throw new Violation("S2", `${nameOf(seen)} holds ${key} with another content or history than others`);
    if (before !== undefined && before.epoch > epoch)
      throw new Violation("S3", `${nameOf(seen)} holds ${key} behind epoch ${before.epoch}`);
    if (before !== undefined && before.lastOffset + 1 !== baseOffset && baseOffset > this.#logStartMax)
      throw new Violation("S2", `${nameOf(seen)} has a gap before ${key}`);
    if (batch.lastOffset < logStartOffset) return;
    const entry = epochEntries.findLast(({ startOffset }) => startOffset <= Math.max(baseOffset, logStartOffset));
    if (entry?.epoch !== epoch)
      throw new Violation("S9", `${nameOf(seen)}: the epoch cache says ${entry?.epoch} for ${key}`);
  }

  #checkBounds(seen: Seen, partition: Partition | undefined): void {
    const { nowUs } = this.#cluster.kernel;
    const { peer, clock } = seen.node;
    const requestCount = peer?.calls.size ?? 0;
    if (requestCount > REQUESTS_MAX) throw new Violation("S22", `${nameOf(seen)} has ${requestCount} requests out`);
    if (clock?.isPaused === true) seen.pausedUs = nowUs;
    // Time-outs that fell due while it stood still come first.
    if (!this.#knowsProduces || nowUs < seen.pausedUs + SECOND_US) return;
    const waitingCount = partition?.leaderState?.waitingProduceCount ?? 0;
    if (waitingCount <= 1) return;
    const askedCount = seen.produces.filter((atUs) => atUs >= nowUs - PRODUCE_US_MAX).length;
    if (waitingCount > askedCount)
      throw new Violation("S22", `${nameOf(seen)}: ${waitingCount} appends wait, of ${askedCount} that were asked for`);
  }

  // ---- replicas ------------------------------------------------------------------------------------------------------

  #checkReplica(seen: Seen): void {
    const { partition } = seen.node;
    if (partition === undefined) {
      seen.role = undefined;
      seen.leading = undefined;
      seen.leaderEpoch = -1;
      seen.partitionEpoch = -1;
      seen.highWatermark = 0;
      return;
    }
    const { highWatermark, leaderEpoch, leaderState } = partition;
    const { logStartOffset, logEndOffset } = partition.log;
    if (!(logStartOffset <= highWatermark && highWatermark <= logEndOffset))
      throw new Violation("S6", `${nameOf(seen)}: ${logStartOffset} <= ${highWatermark} <= ${logEndOffset}`);
    if (hasFailedLog(seen) && (leaderState ?? partition.followerState) !== undefined)
      throw new Violation("S14", `${nameOf(seen)} is ${partition.role}, on a disk that has failed`);
    const partitionEpoch = leaderState?.partitionEpoch ?? partition.state?.partitionEpoch ?? -1;
    if (leaderEpoch < seen.leaderEpoch) throw new Violation("S3", `${nameOf(seen)}: leader epoch fell`);
    // What it committed in the event that ended its leadership counts.
    if (seen.leading !== undefined && seen.leading !== leaderState) this.#checkLeader(seen, seen.leading);
    if (leaderState !== undefined) this.#checkLeader(seen, leaderState);
    else if (this.#hasLedAlone(seen)) this.#commit(seen, highWatermark);
    seen.role = roleOf(partition);
    seen.leading = leaderState;
    seen.leaderEpoch = leaderEpoch;
    seen.partitionEpoch = partitionEpoch;
    seen.highWatermark = highWatermark;
  }

  #checkLeader(seen: Seen, leader: NonNullable<Partition["leaderState"]>): void {
    const { brokerId } = seen.node;
    const known = this.#leaders.get(leader.leaderEpoch);
    this.#leaders.set(leader.leaderEpoch, brokerId);
    if (known !== undefined && known !== brokerId)
      throw new Violation("S3", `epoch ${leader.leaderEpoch} is led by ${known} and ${brokerId}`);
    const isSameLeadership = leader === seen.role;
    if (isSameLeadership && leader.highWatermark < seen.highWatermark)
      throw new Violation("S6", `${nameOf(seen)}: high watermark fell to ${leader.highWatermark}`);
    if (isSameLeadership ? leader.highWatermark > seen.highWatermark : leader.highWatermark > this.committed.endOffset)
      this.#checkAdvance(seen, leader);
    this.#commit(seen, leader.highWatermark);
  }

  #commit(seen: Seen, endOffset: number): void {
    for (const batch of seen.view.from(this.committed.endOffset)) {
      if (batch.baseOffset < this.committed.endOffset || batch.lastOffset >= endOffset) break;
      this.committed.batches.push(batch);
    }
  }

  /**
   * Since the last look, and not any more: decisions may arrive together, and a leadership begin and end in one event. Alone in the ISR,
   * where that is enough, it commits all that it has as it begins.
   */
  #hasLedAlone(seen: Seen): boolean {
    const { brokerId, partition } = seen.node;
    const epoch = this.#aloneEpochs.get(brokerId) ?? -1;
    const isEnough = (this.#cluster.options.minInsyncReplicas ?? 2) <= 1;
    return isEnough && seen.leaderEpoch < epoch && epoch <= (partition?.leaderEpoch ?? -1);
  }

  #checkAdvance(seen: Seen, leader: NonNullable<Partition["leaderState"]>): void {
    const { highWatermark, isrState } = leader;
    const members = isrState.type === "pendingExpand" ? [...isrState.isr, isrState.adding] : isrState.isr;
    // One event may bring both, in this order: a replica that no longer holds it back, and a smaller ISR.
    if (Math.max(isrState.isr.length, seen.isrSize) < leader.effectiveMinIsr)
      throw new Violation("S5", `${nameOf(seen)}: high watermark moved under min ISR`);
    const chain = seen.view.chainAt(highWatermark);
    for (const member of members) {
      const replica = this.#of(member);
      if (replica.lostTail || replica.view.chainAt(highWatermark) === chain) continue;
      // It was there when it told so, and its machine, or a sync that failed, lost it since; the leader has not heard yet that it is out of the ISR.
      const told = leader.replicas.find(({ brokerId }) => brokerId === member)?.brokerEpoch;
      // Nor has the controller, if its process is dead: what it decided before stands.
      const decided = this.#cluster.decided ?? this.#decided;
      const isOut = decided?.isr.includes(member) === false;
      if (isOut && replica.hasLost && told !== replica.node.manager?.brokerEpoch) continue;
      throw new Violation("S5", `${nameOf(seen)}: high watermark ${highWatermark}, but ${member} does not hold it`);
    }
  }

  #checkBelowHighWatermark(seen: Seen): void {
    const { partition } = seen.node;
    if (partition === undefined) return;
    const { highWatermark } = partition;
    const chain = seen.view.chainAt(highWatermark);
    // A log start may lie inside a batch, and is the least high watermark that a leader tells.
    if (chain === undefined && highWatermark > this.#logStartMax)
      throw new Violation("S6", `${nameOf(seen)}: high watermark ${highWatermark} is inside a batch`);
    if (chain !== undefined && chain !== this.committed.chainAt(highWatermark))
      throw new Violation(
        "S1",
        `${nameOf(seen)}: below its high watermark ${highWatermark} lies what was not committed (committed: ${this.committed.endOffset})`,
      );
    const isTrueLeader =
      partition.leaderState !== undefined && partition.leaderEpoch === this.#cluster.decided?.leaderEpoch;
    if (isTrueLeader && !this.#holdsCommitted(seen))
      throw new Violation(
        "S1",
        `${nameOf(seen)} leads and lacks committed records (${seen.view.endOffset} of ${this.committed.endOffset})`,
      );
  }

  #holdsCommitted({ view, lostTail }: Seen): boolean {
    const end = this.committed.endOffset;
    return !lostTail && view.chainAt(end) === this.committed.chainAt(end);
  }

  // ---- the controller ------------------------------------------------------------------------------------------------

  #checkController(): void {
    const before = this.#decided;
    const decided = this.#cluster.decided;
    if (decided === undefined) return;
    this.#decided = decided;
    if (decided.isr.length === 1 && decided.leader === decided.isr[0])
      this.#aloneEpochs.set(decided.leader, decided.leaderEpoch);
    for (const seen of this.#seen) if (this.#isFoundOut(seen)) seen.lostTail = false;
    if (decided.leader >= 0 && !decided.isr.includes(decided.leader))
      throw new Violation("S23", `leader ${decided.leader} is not in the ISR ${decided.isr.join()}`);
    for (const member of decided.isr) {
      const seen = this.#of(member);
      if (!seen.lostTail && !this.#holdsCommitted(seen))
        throw new Violation("S4", `${nameOf(seen)} is in the ISR and lacks committed records`);
    }
    if (before === undefined || before === decided) return;
    if (decided.partitionEpoch < before.partitionEpoch || decided.leaderEpoch < before.leaderEpoch)
      throw new Violation("S23", `epochs fell: ${JSON.stringify(before)} to ${JSON.stringify(decided)}`);
    if (decided.leaderEpoch !== before.leaderEpoch) return;
    for (const member of decided.isr) if (!before.isr.includes(member)) this.#checkJoined(this.#of(member), decided);
  }

  /**
   * The controller knows of the loss, and counts on the replica no more. Before, a leader may still be taking in the one that it was. Looked
   * for at each event: it may hold for a short time only, until a registration of an earlier process arrives once more.
   */
  #isFoundOut({ node, lostInEpoch }: Seen): boolean {
    const { decided } = this.#cluster;
    if (decided === undefined || decided.isr.includes(node.brokerId)) return false;
    const registration = this.#registrationOf(node);
    if (registration === undefined) return false;
    // What a sync that failed lost is lost in the boot of the process before: that one's registration tells nothing of it.
    if (registration.brokerEpoch <= lostInEpoch) return false;
    const own = `${node.brokerId}-${node.bootId}`;
    // A process that comes after a failure of the disk says so, and tells of another boot.
    return registration.bootId === own || registration.bootId.startsWith(`${own} after `);
  }

  #registrationOf({ brokerId }: Node): { readonly brokerEpoch: number; readonly bootId: string } | undefined {
    return this.#cluster.controller?.state.brokers.find((other) => other.brokerId === brokerId);
  }

  #checkJoined(seen: Seen, decided: PartitionState): void {
    const leader = this.#of(decided.leader).node.partition?.leaderState;
    if (leader?.leaderEpoch !== decided.leaderEpoch || seen.lostTail || seen.node.log === undefined) return;
    if (seen.view.endOffset < leader.epochStartOffset)
      throw new Violation(
        "S19",
        `${nameOf(seen)} joins with ${seen.view.endOffset}, the epoch began at ${leader.epochStartOffset}`,
      );
  }

  #checkRemotes(): void {
    for (const { node } of this.#seen) {
      const leader = node.partition?.leaderState;
      for (const { brokerId, brokerEpoch, logEndOffset } of leader?.replicas ?? []) {
        const seen = this.#of(brokerId);
        // What an earlier process of the broker told does not count any more: it is not the one that is registered.
        if (brokerEpoch !== seen.node.manager?.brokerEpoch) continue;
        const follower = seen.node.partition?.followerState;
        if (follower?.leaderEpoch !== leader?.leaderEpoch || seen.lostTail) continue;
        // An empty log may have to begin below the start that it was told, with the batch that holds it.
        const endOffset = seen.view.batches.length === 0 ? this.#logStartMax : seen.view.endOffset;
        if ((logEndOffset ?? 0) > endOffset)
          throw new Violation("S25", `${node.brokerId} takes ${nameOf(seen)} to be at ${logEndOffset}`);
      }
    }
  }

  #of(brokerId: number): Seen {
    const seen = this.#seen.find(({ node }) => node.brokerId === brokerId);
    if (seen === undefined) throw new Error(`no broker ${brokerId}`);
    return seen;
  }
}
