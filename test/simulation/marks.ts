/** A branch of the engine that is out of the ordinary, and how seeds come to it. */
export interface Mark {
  readonly id: string;
  /** The compiled module, below the directory of the packages. */
  readonly file: string;
  /** A piece of its code, found once; white space does not count. The branch begins at the bar. */
  readonly at: string;
}

/** Fewer than about one seed in twenty comes there: a few seeds may not. */
export const SELDOM: ReadonlySet<string> = new Set([
  "follower.cut.beginsAnew",
  "follower.outOfRange",
  "follower.epochAnswer.beginsAnew",
  "follower.cut.notFinal",
  "truncation.ownEpochBelow",
  "partition.truncate.leftMeanwhile",
  "partition.truncateFully",
  "divergence.belowStart",
  "leader.fetch.ofReplaced",
  "leader.answer.late",
  "partition.storageFailedMeanwhile",
  "open.olderSnapshot",
  "open.trustFails",
  "open.epochFileRebuilt",
  "open.stopNotAsLeft",
  "trust.recoveryPointLower",
  "trust.otherPrint",
  "trust.stopEndsElsewhere",
  "survey.border.cut",
]);

/** Seeds do not come there; other tests do. */
export const NEVER: ReadonlyMap<string, string> = new Map([
  ["follower.fetchAnswer.diverging", "second guard: the round before the first fetch has settled it"],
  ["partition.fetch.diverging", "second guard: the round before the first fetch has settled it"],
  ["divergence.diverging", "second guard: the round before the first fetch has settled it"],
  ["truncation.leaderUnknown", "followers look at it before"],
  ["truncation.noOwnEpoch", "an epoch below all of a follower's lies below its log start, and it begins anew"],
  ["leader.produce.afterItsEnd", "a partition asks nothing more of a leadership that is over"],
  ["leader.acks.tooFewAfterAppend", "the high watermark stands still while too few are in sync"],
  ["leader.start.passesHighWatermark", "records above the high watermark are not deleted"],
  ["partition.state.old", "the controller's stream is in order"],
  ["survey.border.noted", "offsets are left out by compaction, which seeds do not do"],
  ["log.roll.gap", "offsets are left out by compaction, which seeds do not do"],
  ["log.roll.fails", "only where offsets are left out"],
  ["survey.overlap.cut", "a damaged name, or another program"],
  ["trust.indexesGone", "somebody removed a file"],
  ["log.truncate.belowStart", "a follower begins anew instead"],
  ["log.truncate.beginsAtStart", "only where offsets are left out"],
  ["log.deleteRecords.beginsAtStart", "only where offsets are left out"],
  ["append.leftMeanwhile", "only while a worker looks at records, which are not compressed here"],
]);

/** Beside the engine, and never in it: a mark whose place is gone fails, as a planted bug does. */
export const MARKS: readonly Mark[] = [
  ...marksOf("replica/dist/follower-state.js", [
    ["follower.answer.late", "input.request !== this.#outstanding) ¦return;"],
    ["follower.request.failed", '¦case "requestFailed":'],
    [
      "follower.epochAnswer.beginsAnew",
      "if (this.#beginsAnew(this.#log.logEndOffset, input.logStartOffset, effects)) ¦return;",
    ],
    ["follower.epochAnswer.agrees", '¦this.#phase = "fetching"; if (this.#outOfRangeAt === this.#position)'],
    ["follower.epochAnswer.leaderEnd", '¦"leaderEndOffset" : "epochAnswer"'],
    ["follower.fetchAnswer.diverging", "¦const answer = { epoch: input.divergingEpoch"],
    ["follower.outOfRange", "¦this.#onOutOfRange(input.nowMs, effects);"],
    ["follower.cut.notFinal", 'point.isFinal ? "fetching" : ¦"asking"'],
    ["follower.cut.beginsAnew", "if (this.#beginsAnew(point.offset, leaderLogStart, effects)) ¦return true;"],
    ["follower.cut.nothing", "if (point.offset >= this.#log.logEndOffset && !isTailEpochEmpty) ¦return false;"],
    ["follower.fenced", '¦this.#phase = "fenced";'],
    ["follower.raiseLogStart", 'if (offset > logStartOffset) ¦effects.push({ type: "raiseLogStart"'],
    ["follower.append.refused", '¦case "appendRefused":'],
  ]),
  ...marksOf("replica/dist/truncation.js", [
    ["truncation.leaderUnknown", "if (answer.epoch < 0 || answer.endOffset < 0) ¦return undefined;"],
    ["truncation.noOwnEpoch", "if (own.epoch < 0) ¦return"],
    ["truncation.ownEpochBelow", "if (own.epoch !== answer.epoch) ¦return"],
    ["divergence.belowStart", 'fetchOffset < log.logStartOffset) ¦return { type: "outOfRange" }; if'],
    ["divergence.diverging", '¦return { type: "diverging"'],
    ["divergence.outOfRange", 'fetchOffset > log.logEndOffset) ¦return { type: "outOfRange" };'],
  ]),
  ...marksOf("replica/dist/leader-state.js", [
    ["leader.produce.afterItsEnd", '¦effects.push({ type: "completeProduce", id: input.id, error: this.#endedWith });'],
    ["leader.produce.tooFewInSync", '¦"NOT_ENOUGH_REPLICAS" : "NONE"'],
    ["leader.fetch.fenced", 'remote.isFenced(fetch.brokerEpoch) ? ¦"NOT_LEADER_OR_FOLLOWER"'],
    ["leader.fetch.ofReplaced", "if (remote === undefined || remote.isFenced(fetch.brokerEpoch)) ¦return;"],
    ["leader.isr.expands", '¦this.#propose({ type: "pendingExpand"'],
    ["leader.isr.shrinks", '¦this.#propose({ type: "pendingShrink"'],
    ["leader.answer.ofAnother", "!proposal.isInFlight) ¦return;"],
    ["leader.answer.late", "partitionEpoch < this.#partitionEpoch) ¦return;"],
    ["leader.answer.ineligible", '¦case "INELIGIBLE_REPLICA":'],
    ["leader.answer.controllerAhead", '¦case "NEW_LEADER_ELECTED":'],
    ["leader.answer.retry", "¦proposal.attemptsUncertain += 1;"],
    ["leader.state.old", "state.partitionEpoch <= this.#partitionEpoch) ¦return;"],
    ["leader.highWatermark.tooFewInSync", "if (this.isUnderMinIsr) ¦return;"],
    ["leader.acks.tooFewAfterAppend", '"NONE" : ¦"NOT_ENOUGH_REPLICAS_AFTER_APPEND"'],
    [
      "leader.start.passesHighWatermark",
      "if (this.#highWatermark < logStartOffset) ¦this.#highWatermark = logStartOffset;",
    ],
  ]),
  ...marksOf("replica/dist/partition.js", [
    ["partition.state.old", "state.leaderEpoch < known.leaderEpoch)) ¦return;"],
    ["partition.state.sameEpoch", '¦if (this.#role.type === "leader") this.#lead({ type: "partitionState"'],
    ["partition.state.nobodyLeads", "else ¦await this.log.becomeFollower();"],
    [
      "partition.produce.leftMeanwhile",
      'if (this.#role !== role) ¦return this.#refused("NOT_LEADER_OR_FOLLOWER"); this.#logMoved();',
    ],
    ["partition.produce.logRefuses", "¦return this.#refused(peerErrorOf(error));"],
    ["partition.produce.timesOut", 'if (this.#role === role) ¦this.#lead({ type: "abandon"'],
    ["partition.fetch.outOfRange", 'if (check.type === "outOfRange") ¦return'],
    ["partition.fetch.diverging", 'if (check.type === "diverging") ¦return'],
    ["partition.fetch.leftMeanwhile", "¦pool.giveBack(bytes); return refusedFetch"],
    ["partition.fence.old", '¦return "FENCED_LEADER_EPOCH";'],
    ["partition.fence.young", 'if (currentLeaderEpoch > this.leaderEpoch) ¦return "UNKNOWN_LEADER_EPOCH";'],
    ["partition.fence.failed", 'if (this.#role.type === "failed") ¦return "KAFKA_STORAGE_ERROR";'],
    ["partition.answer.ofEarlierLeadership", "if (this.leaderState?.leaderEpoch !== asked.leaderEpoch) ¦return;"],
    ["partition.append.leftMeanwhile", 'if (this.#role !== role) ¦return; await this.#follow(role, { type: "appended"'],
    ["partition.append.refused", '¦await this.#follow(role, { type: "appendRefused"'],
    ["partition.append.fails", '(error.code === "KAFKA_STORAGE_ERROR" && !error.retriable)) ¦throw error;'],
    [
      "partition.truncate.leftMeanwhile",
      'if (this.#role !== role) ¦return; await this.#follow(role, { type: "truncated"',
    ],
    ["partition.truncateFully", "else ¦await this.log.truncateFullyAndStartAt(effect.offset);"],
    ["partition.raiseLogStart", "¦await this.log.deleteRecords(offset, role.state.highWatermark);"],
    ["partition.storageFails", "¦this.#storageFailure = error;"],
    ["partition.storageFailedMeanwhile", "if (this.#storageFailure !== undefined) ¦throw this.#storageFailure;"],
  ]),
  ...marksOf("log/dist/load-log.js", [
    ["open.cut", "¦cutReport = {"],
    ["open.noSegment", "¦logEndOffset = toOffset(Math.max(knownStart, recoveryPointBefore));"],
    ["open.copiesUnsynced", "¦copyUnsynced(segments, recoveryPointBefore)"],
    ["open.isDirty", "¦segment.isDirty = true;"],
    ["open.indexesUnsynced", "¦segment.indexes.noteUnsynced();"],
    ["open.olderSnapshot", "¦limit = surveyed.logEndOffset;"],
    ["open.trustFails", "¦const all = await surveyFromSnapshot("],
    ["open.stopNotAsLeft", "if (isAsLeft) return { ...asLeft, isTrusted: true, segmentsTrusted }; ¦for"],
    ["open.leftovers", "¦await removeIfPresent(files, joinPath(directory, name));"],
    ["open.cutWholeSegments", "¦kept.pop();"],
    [
      "open.epochFileRebuilt",
      "if (problem !== undefined) ¦epochs = LeaderEpochFileCache.rebuilt(files, directory, seenEpochs);",
    ],
    ["open.startSaved", "¦await state.saveStart(logStartOffset, damaged.length === 0"],
  ]),
  ...marksOf("log/dist/log-trust.js", [
    ["trust.noSeal", "if (seal === undefined) ¦return NOTHING_TRUSTED;"],
    ["trust.recoveryPointLower", "?? endBaseOffset)) ¦return NOTHING_TRUSTED;"],
    ["trust.otherPrint", "!== seal.print) ¦return NOTHING_TRUSTED;"],
    ["trust.indexesGone", "¦await segment.rebuildIndexes();"],
    ["trust.stopEndsElsewhere", "¦segment.reset(); return false;"],
  ]),
  ...marksOf("log/dist/log-survey.js", [
    ["survey.overlap.cut", "if (baseOffset >= recoveryPoint) ¦return this.#cutAt({ at, positionBytes: 0, reason });"],
    ["survey.border.noted", "¦this.#endOffset = baseOffset; this.#isBehindGap = true;"],
    [
      "survey.border.cut",
      'if (this.#endOffset >= recoveryPoint) ¦return this.#cutAt({ at, positionBytes: 0, reason: "segment does not follow',
    ],
    ["survey.batch.cut", "¦this.#cutAt({ at, positionBytes: end.positionBytes, reason });"],
    ["survey.batch.deleted", "if (isDeleted) ¦this.#deletedEpochs.add(epoch);"],
    ["survey.indexes.rebuilt", "¦this.#indexesRebuilt += 1; segment.indexes.resetInterval()"],
  ]),
  ...marksOf("log/dist/local-log.js", [
    ["log.write.cutBack", "if (failure.retriable) ¦await segment.cutBack({ durably: true });"],
    ["log.roll.gap", "¦await this.#state.saveGapBefore("],
    ["log.roll.fails", "if (firstOffset > this.#logEndOffset) ¦await this.#snapshots.removeUnless("],
    ["log.truncate.belowStart", "if (logStartOffset < this.#logStartOffset) ¦await this.#state.saveStart("],
    [
      "log.truncate.dropsSegments",
      "for (const segment of removed) ¦await this.#removeSegment(segment); if (removed.length > 0) await this.#files.syncDirectory(this.#directory); this.#lastBatchEndOffset",
    ],
    ["log.truncate.beginsAtStart", "¦await this.#beginAtStart(); this.#segments = this.#segments.slice(-1);"],
    ["log.deleteRecords.flushesFirst", "this.#flush.hasUnsyncedNames) ¦await this.#flush.flush();"],
    ["log.deleteRecords.beginsAtStart", "if (this.foundEndOffset < offset) ¦await this.#beginAtStart();"],
    ["log.deleteRecords.dropsSegments", "¦await segment.renameForRemoval();"],
  ]),
  ...marksOf("log/dist/log-flush.js", [
    ["flush.waits", "¦this.startBackground(); if (this.#background === undefined)"],
    ["flush.fails", "¦this.#events.onFailure(error); return error;"],
    ["flush.stopped", "if (stop !== undefined) ¦throw stop;"],
    ["flush.midway", "¦syncedBytes = 0; await this.#noteSynced("],
  ]),
  ...marksOf("log/dist/log-appends.js", [
    ["append.queued", "¦this.#core.queue.append(batch, header, append, judgement)"],
    ["append.writeNow.fails", "¦return this.#core.task(() => local.failWrite(error));"],
    ["append.undone", "¦remembered.undo();"],
    ["append.duplicate", "¦const result = { baseOffset: toOffset(verdict.baseOffset)"],
    ["append.refused", 'if (verdict.type === "refuse") ¦entry.reject(verdict.error);'],
    ["append.leftMeanwhile", "if (this.#core.leaderEpoch === undefined) ¦throw"],
    ["append.follower.undone", "¦this.#core.epochs.truncateFromEnd(this.#core.local.logEndOffset); throw error;"],
    [
      "append.producersExpire",
      "¦this.#nextExpiryCheckMs = nowMs + PRODUCER_ID_EXPIRATION_CHECK_MS; this.#core.producers.expire(",
    ],
  ]),
];

function marksOf(file: string, places: readonly (readonly [id: string, at: string])[]): readonly Mark[] {
  return places.map(([id, at]) => ({ id, file, at }));
}

/** Where a mark is in the code of its file. @throws Error when its place is gone, or is there more than once */
export function placeOf(mark: Mark, code: string): number {
  const [before = "", after = ""] = mark.at.split("¦");
  const pattern = new RegExp(`(?<before>${patternOf(before)})${patternOf(after)}`, "gu");
  const [first, ...more] = [...code.matchAll(pattern)];
  if (first === undefined || more.length > 0)
    throw new Error(`mark ${mark.id}: its place in ${mark.file} is there ${more.length + (first ? 1 : 0)} times`);
  return first.index + (first.groups?.["before"]?.length ?? 0);
}

function patternOf(text: string): string {
  return text
    .split(/\s+/u)
    .map((word) => word.replaceAll(/[$()*+.?[\\\]^{|}]/gu, String.raw`\$&`))
    .join(String.raw`\s*`);
}
