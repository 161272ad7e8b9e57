import type { Mutant } from "./mutant.ts";

const LOG_APPENDS = "packages/log/src/log-appends.ts";
const LOG_TRUNCATION = "packages/log/src/log-truncation.ts";
const PARTITION_LOG = "packages/log/src/partition-log.ts";
const LOCAL_LOG = "packages/log/src/local-log.ts";
const LOG_FLUSH = "packages/log/src/log-flush.ts";
const SEGMENT = "packages/log/src/segment.ts";
const SEGMENT_INDEXES = "packages/log/src/segment-indexes.ts";
const SEGMENT_WALK = "packages/log/src/segment-walk.ts";
const SURVEY = "packages/log/src/log-survey.ts";
const LOG_SEAL = "packages/log/src/log-seal.ts";
const LOAD_LOG = "packages/log/src/load-log.ts";
const OFFSET_INDEX = "packages/log/src/offset-index.ts";
const CLEAN_SHUTDOWN = "packages/log/src/clean-shutdown.ts";
const EPOCH_FILE = "packages/epoch-cache/src/leader-epoch-file-cache.ts";
const PRODUCER_REPLAY = "packages/log/src/producer-replay.ts";
const PRODUCER_STATE = "packages/log/src/producer-state.ts";
const FINISH_SWAPS = "packages/log/src/finish-swaps.ts";
const FILE_IO = "packages/base/src/file-io.ts";

/** Known bugs of one node's storage, which the crash suite has to notice. A letter tells apart several forms of one bug of the list. */
export const STORAGE_MUTANTS: readonly Mutant[] = [
  {
    id: "M13",
    title: "with flush always an append is answered before its sync",
    edits: [
      {
        file: LOG_APPENDS,
        find: `    try {
      // What was written before a full disk is in the log, and is answered as any other once it is safe. Behind a failed sync, the one
      // of a roll in this group too, nothing is.
`,
        // The sync takes a while, as on a real disk: else it would still come before the caller hears.
        replace: `    for (const { entry, result } of outcome.answers) entry.resolve(result);
    for (let turn = 0; turn < 50; turn += 1) await undefined;
    try {
`,
      },
    ],
  },
  {
    id: "M15",
    title: "a sync that failed is tried again and then believed",
    edits: [
      {
        file: SEGMENT,
        find: `this.#pendingSync.run(() => file.sync())`,
        replace: `this.#pendingSync.run(() => file.sync().catch(() => file.sync()))`,
      },
    ],
  },
  {
    id: "M16",
    title: "a failed sync fails the first of those who wait for it, and the others are answered",
    edits: [
      {
        file: LOG_APPENDS,
        find: `      for (const { entry } of outcome.answers) entry.reject(failure);
      outcome.answers.length = 0;
`,
        replace: `      for (const { entry } of outcome.answers.splice(0, 1)) entry.reject(failure);
`,
      },
    ],
  },
  {
    id: "M19",
    title: "recovery stops one batch early",
    edits: [
      {
        file: SURVEY,
        find: `        toBytes: bytes,
        verifyCrc: walk.verifyCrc,`,
        replace: `        toBytes: Math.max(bytes - 1, walk.fromBytes),
        verifyCrc: walk.verifyCrc,`,
      },
    ],
  },
  {
    id: "M19b",
    title: "recovery leaves the torn batch behind the last whole one in the file",
    edits: [
      {
        file: LOAD_LOG,
        find: `  if (!isWhollyCut) await kept.at(-1)?.truncateAt(cut.positionBytes, cut.offset);
`,
        replace: ``,
      },
    ],
  },
  {
    id: "M20",
    title: "zeros at the end of a segment pass for an empty batch",
    edits: [
      {
        file: SEGMENT_WALK,
        find: `      if (scan.type === "corrupt") return`,
        replace: `      if (scan.type === "corrupt" && chunk[at + 16] === 0) {
        at += 1;
        continue;
      }
      if (scan.type === "corrupt") return`,
      },
    ],
  },
  {
    id: "M21",
    title: "recovery takes a batch whose offset does not follow the one before it",
    edits: [
      {
        file: SURVEY,
        find: `    if (header.baseOffset < this.#endOffset) return \`offset \${header.baseOffset} after \${this.#endOffset - 1}\`;
`,
        replace: ``,
      },
    ],
  },
  {
    id: "M22",
    title: "a sealed segment's index is written before its batches are on the disk, and believed by recovery",
    edits: [
      {
        file: LOG_FLUSH,
        find: `    await this.#syncActive();
    await sealed.persistIndexes();
`,
        replace: `    await sealed.persistIndexes();
    await this.#syncActive();
`,
      },
      {
        file: LOG_FLUSH,
        find: `      const isNameNew = await this.#bothOf(segment.sync(), sealed?.persistIndexes());
`,
        replace: `      const isNameNew = segment !== active && (await segment.persistIndexes());
      await segment.sync();
`,
      },
      {
        file: SURVEY,
        find: `const offsets = check.areOffsetsGood && !verifyCrc ? onDisk.offsets : undefined;`,
        replace: `const offsets = onDisk.offsets;`,
      },
    ],
  },
  {
    id: "M23",
    title: "a lookup in the index gives the entry above the offset, not the one below",
    edits: [
      {
        file: OFFSET_INDEX,
        find: `    return this.#floor(offset - this.baseOffset);`,
        replace: `    return Math.min(this.#floor(offset - this.baseOffset) + 1, this.#count - 1);`,
      },
    ],
  },
  {
    id: "M24",
    title: "a truncation forgets the index",
    edits: [
      {
        file: SEGMENT_INDEXES,
        find: `    this.offsets.truncateTo(offset);
`,
        replace: ``,
      },
    ],
  },
  {
    id: "M24b",
    title: "a truncation forgets the producers' state",
    edits: [
      {
        file: LOG_TRUNCATION,
        find: `      this.#core.producers = await this.#core.local.truncateTo(offset);`,
        replace: `      await this.#core.local.truncateTo(offset);`,
      },
    ],
  },
  {
    id: "M24c",
    title: "a truncation forgets the time index",
    edits: [
      {
        file: SEGMENT_INDEXES,
        find: `    this.times.truncateTo(offset);
`,
        replace: ``,
      },
    ],
  },
  {
    id: "M25",
    title: "a truncation leaves newer segments on the disk",
    edits: [
      {
        file: LOCAL_LOG,
        find: `    for (const segment of removed) await this.#removeSegment(segment);
    if (removed.length > 0)`,
        replace: `    if (removed.length > 0)`,
      },
    ],
  },
  {
    id: "M26",
    title: "the epoch file is written in place",
    edits: [
      {
        file: EPOCH_FILE,
        find: `    await writeFileAtomically(this.#files, path, encodeLeaderEpochCheckpoint(entries));`,
        replace: `    const file = await this.#files.open(path, "truncate");
    await file.writeAt(encodeLeaderEpochCheckpoint(entries), 0);
    await file.sync();
    await file.close();
    await this.#files.syncDirectory(this.#directory);
    void writeFileAtomically;`,
      },
    ],
  },
  {
    id: "M26b",
    title: "a file that is replaced is renamed before it is synced",
    edits: [
      {
        file: FILE_IO,
        find: `    await writeFully(file, content, 0);
    await file.sync();
`,
        replace: `    await writeFully(file, content, 0);
`,
      },
    ],
  },
  {
    id: "M27",
    title: "the epoch cache is not cut with the log",
    edits: [
      {
        file: LOG_TRUNCATION,
        find: `    this.#core.epochs.truncateFromEnd(Math.min(offset, logEndOffset));
`,
        replace: ``,
      },
    ],
  },
  {
    id: "M28",
    title: "an epoch is entered after its first append was answered, not when the leadership begins",
    edits: [
      {
        file: PARTITION_LOG,
        find: `      await this.#core.epochs.assign(epoch, this.#core.local.logEndOffset);
      this.#core.leaderEpoch = epoch;`,
        replace: `      this.#core.leaderEpoch = epoch;`,
      },
      {
        file: LOG_APPENDS,
        find: `      if (this.#core.epochs.latest?.epoch !== epoch) await this.#core.epochs.assign(epoch, first.baseOffset);
`,
        replace: ``,
      },
      {
        file: LOG_APPENDS,
        find: `    for (const { entry, result } of outcome.answers) entry.resolve(result);
`,
        replace: `    for (const { entry, result } of outcome.answers) entry.resolve(result);
    const { epochs, leaderEpoch } = this.#core;
    if (leaderEpoch !== undefined && epochs.latest?.epoch !== leaderEpoch) await epochs.assign(leaderEpoch, startOffset);
`,
      },
    ],
  },
  {
    id: "M29",
    title: "a roll does not sync the segment that it seals before the recovery point moves",
    edits: [
      {
        file: LOG_FLUSH,
        find: `    await this.#syncActive();
    await sealed.persistIndexes();`,
        replace: `    await sealed.persistIndexes();`,
      },
    ],
  },
  {
    id: "M30",
    title: "a flush raises the recovery point before anything is on the disk",
    edits: [
      {
        file: LOG_FLUSH,
        find: `    const activeBytes = active.sizeBytes;
`,
        replace: `    const activeBytes = active.sizeBytes;
    await this.#raiseRecoveryPoint(logEndOffset, 0, 0);
`,
      },
    ],
  },
  {
    // Alone this loses nothing: a log is believed only if it ends at its recovery point, below which all was synced once. What is wrong
    // is the marker itself, so the suite looks for it.
    id: "M31",
    title: "the marker of a clean stop is still there after the next start",
    edits: [
      {
        file: CLEAN_SHUTDOWN,
        find: `  await files.unlink(joinPath(directory, CLEAN_SHUTDOWN_FILE));
  await files.syncDirectory(directory);
  return marker;`,
        replace: `  return marker;`,
      },
    ],
  },
  {
    id: "M17",
    title: "recovery cuts the log at the first bad batch, also below the recovery point",
    edits: [
      {
        file: SURVEY,
        find: `    if (this.#endOffset >= recoveryPoint) {
      this.#cutAt({ at, positionBytes: end.positionBytes, reason });`,
        replace: `    if (this.#endOffset >= 0) {
      this.#cutAt({ at, positionBytes: end.positionBytes, reason });`,
      },
    ],
  },
  {
    id: "M18",
    title: "recovery takes the offset of a batch as it is, which no CRC covers",
    edits: [
      {
        file: SURVEY,
        find: "    if (header.baseOffset < this.#endOffset) return `offset ${header.baseOffset} after ${this.#endOffset - 1}`;\n",
        replace: ``,
      },
    ],
  },
  {
    id: "M18b",
    title: "recovery takes the leader epoch of a batch as it is, which no CRC covers",
    edits: [
      {
        file: SURVEY,
        find: `epoch >= 0 && epoch < this.#lastEpoch)`,
        replace: `epoch < -2)`,
      },
      {
        file: SURVEY,
        find: `    return this.#contradictionOf(header);`,
        replace: `    return undefined;`,
      },
    ],
  },
  {
    id: "M38",
    title: "an open forgets what the batches say of their producers",
    edits: [
      {
        file: PRODUCER_REPLAY,
        find: `    if (!this.#isAtSnapshot) this.#enterSnapshot();
    return this.#state;`,
        replace: `    return this.#fromSnapshot ?? new ProducerState();`,
      },
    ],
  },
  {
    id: "M39",
    title: "a batch that comes again is answered with another offset",
    edits: [
      {
        file: PRODUCER_STATE,
        find: `baseOffset: lastOffset - offsetDelta, lastOffset };`,
        replace: `baseOffset: lastOffset - offsetDelta + 1, lastOffset };`,
      },
    ],
  },
  {
    id: "M40",
    title: "the last stable offset is where the youngest open transaction begins",
    edits: [
      {
        file: PRODUCER_STATE,
        find: `this.#openTransactions?.keys().next().value;`,
        replace: `[...(this.#openTransactions?.keys() ?? [])].at(-1);`,
      },
    ],
  },
  {
    id: "M51",
    title: "delete-records raises the log start in memory only",
    edits: [
      {
        file: LOCAL_LOG,
        find: `    await this.#state.saveStart(offset, this.recoveryPoint, this.#flush.seal(offset));
    this.#logStartOffset = offset;
    // Behind`,
        replace: `    this.#logStartOffset = offset;
    // Behind`,
      },
    ],
  },
  {
    id: "M52",
    title: "a log whose last segment file is gone is a shorter log",
    edits: [
      {
        file: SURVEY,
        find: `    if (this.cut === undefined && this.#endOffset < recoveryPoint) {`,
        replace: `    if (this.cut === undefined && this.#endOffset < 0) {`,
      },
    ],
  },
  {
    id: "P16",
    title: "an open takes away what a .swap replaces while the name of the .swap is in the page cache only",
    edits: [
      {
        file: FINISH_SWAPS,
        find: `  await files.syncDirectory(directory);
  const swaps = await dropIncomplete(context, names);`,
        replace: `  const swaps = await dropIncomplete(context, names);`,
      },
    ],
  },
  {
    id: "P17",
    title:
      "a transaction index is written in place, and an entry counts by its last offset alone, whatever else is torn",
    edits: [
      {
        file: SURVEY,
        find: `    a.producerId === b.producerId &&
    a.firstOffset === b.firstOffset &&
    a.lastOffset === b.lastOffset &&
    a.lastStableOffset === b.lastStableOffset`,
        replace: `    a.lastOffset === b.lastOffset`,
      },
      {
        file: SEGMENT,
        find: "const temporaryPath = `${this.transactionIndexPath}.tmp`;",
        replace: "const temporaryPath = this.transactionIndexPath;",
      },
    ],
  },
  {
    id: "P18",
    title: "the state vouches for a sealed segment whose indexes were not written",
    edits: [
      {
        file: LOG_FLUSH,
        find: `      const isNameNew = await this.#bothOf(segment.sync(), sealed?.persistIndexes());
`,
        replace: `      const isNameNew = false;
      await segment.sync();
`,
      },
    ],
  },
  {
    id: "P19",
    title: "the state vouches for segments without their sizes",
    edits: [
      {
        file: LOG_SEAL,
        find: `    view.setFloat64(at + 8, sizeBytes);`,
        replace: `    view.setFloat64(at + 8, Math.min(sizeBytes, 0));`,
      },
    ],
  },
  {
    id: "P20",
    title: "the state vouches for segments without the numbers of their aborted transactions",
    edits: [
      {
        file: LOG_SEAL,
        find: `    view.setUint32(at + 16, transactionIndex.count);`,
        replace: `    view.setUint32(at + 16, Math.min(transactionIndex.count, 0));`,
      },
    ],
  },
  {
    id: "P21",
    title: "the recovery point and the seal rise before what they speak of is synced",
    edits: [
      {
        file: LOG_FLUSH,
        find: `    let syncedBytes = 0;
`,
        replace: `    let syncedBytes = 0;
    await this.#raiseRecoveryPoint(logEndOffset, active.baseOffset, 0);
`,
      },
    ],
  },
  {
    id: "P25",
    title: "inside of a flush the recovery point rises over the segment that is synced next",
    edits: [
      {
        file: LOG_FLUSH,
        find: `      const isNameNew = await this.#bothOf(segment.sync(), sealed?.persistIndexes());
`,
        replace: `      const next = segments[segments.indexOf(segment) + 1];
      if (next !== undefined) await this.#noteSynced(next.baseOffset, next.baseOffset, 0);
      const isNameNew = await this.#bothOf(segment.sync(), sealed?.persistIndexes());
`,
      },
    ],
  },
  {
    id: "P26",
    title: "nobody makes up for the sync of an index that an open has left to the flush",
    edits: [
      {
        file: SEGMENT_INDEXES,
        find: `      await this.#offsetFile.syncLeft();
      await this.#timeFile.syncLeft();
`,
        replace: ``,
      },
    ],
  },
];
