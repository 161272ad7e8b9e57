import { incrementSequence, isControlBatch, isTransactional } from "@tidemark/wire";
import type { BatchHeader, EndTransactionMarker } from "@tidemark/wire";
import type { BatchOrigin } from "./append-checks.ts";
import { LogError } from "./error.ts";
import type { AbortedTransaction } from "./transaction-index.ts";

/** Batches remembered per producer; a producer may have as many in flight. Kafka: ProducerStateEntry.NUM_BATCHES_TO_RETAIN. */
export const BATCHES_REMEMBERED = 5;

/** In this epoch a producer cannot go any higher: a marker of transaction version 2 may then repeat it. */
const PRODUCER_EPOCH_MAX = 2 ** 15 - 1;

/** One of a producer's last batches. */
export interface RememberedBatch {
  /** -1 when the batch has none, as those of a coordinator. */
  readonly lastSequence: number;
  readonly lastOffset: number;
  /** lastOffset - base offset; also lastSequence - first sequence. */
  readonly offsetDelta: number;
  /** Maximum timestamp of the batch. */
  readonly timestamp: number;
}

/** What a log knows of one producer. Immutable. */
export interface ProducerEntry {
  /** -1: the producer was seen in an emptied control batch only. */
  readonly producerEpoch: number;
  /** Oldest first, at most `BATCHES_REMEMBERED`; none when only a marker is known of this epoch. */
  readonly batches: readonly RememberedBatch[];
  /** Of its last batch or marker, as that says; what expiry goes by. -1 = none. */
  readonly lastTimestamp: number;
  /** Of the coordinator that wrote its last marker; -1 = none. */
  readonly coordinatorEpoch: number;
  /** Where its open transaction begins, or `undefined`. */
  readonly transactionFirstOffset: number | undefined;
}

export type ProducerVerdict =
  | { readonly type: "append" }
  | { readonly type: "duplicate"; readonly baseOffset: number; readonly lastOffset: number }
  | { readonly type: "refuse"; readonly error: LogError };

/** What a leader has to know of an append besides its header. */
export interface ProducerAppend {
  readonly origin: BatchOrigin;
  /** The marker in the batch, if it is one. */
  readonly marker?: EndTransactionMarker | undefined;
  /** Of the producer's client, as the coordinator knows it: 0, 1, or 2, with which every marker raises the producer epoch. */
  readonly transactionVersion?: 0 | 1 | 2;
  /** Whether the coordinator was asked that the transaction is open there. */
  readonly isTransactionVerified?: boolean;
}

/** A transaction that a marker ended. */
interface CompletedTransaction {
  readonly firstOffset: number;
  /** Of its marker. */
  readonly markerOffset: number;
}

/** What `remember` did. */
export interface Remembered {
  /** The way back, for a write that fails; ways back run newest first. */
  readonly undo: () => void;
  /** What the transaction index of the marker's segment has to say, when the marker aborts an open transaction. */
  readonly aborted: AbortedTransaction | undefined;
}

const APPEND: ProducerVerdict = { type: "append" };
const NOTHING_REMEMBERED: Remembered = { undo: () => undefined, aborted: undefined };

/**
 * What the log knows of its producers: epoch, last batches and open transaction of each, up to some offset.
 *
 * Source: apache/kafka storage/.../internals/log/{ProducerStateManager,ProducerAppendInfo,ProducerStateEntry}.java
 */
export class ProducerState {
  readonly #producers = new Map<number, ProducerEntry>();
  /** First offset -> producer id. Invariant: in the order of the offsets. */
  #openTransactions: Map<number, number> | undefined;
  /** Ended ones that the high watermark had not passed when last heard of. In the order of their markers. */
  #completedTransactions: readonly CompletedTransaction[] = [];

  /** @param entries of a snapshot */
  constructor(entries: ReadonlyMap<number, ProducerEntry> = new Map()) {
    const open: [number, number][] = [];
    for (const [producerId, entry] of entries) {
      this.#producers.set(producerId, entry);
      if (entry.transactionFirstOffset !== undefined) open.push([entry.transactionFirstOffset, producerId]);
    }
    if (open.length > 0) this.#openTransactions = new Map(open.sort(([a], [b]) => a - b));
  }

  get entries(): ReadonlyMap<number, ProducerEntry> {
    return this.#producers;
  }

  get producerCount(): number {
    return this.#producers.size;
  }

  /**
   * What a leader does with a batch: append it, answer an earlier one's offsets, or refuse it.
   *
   * Order as in Kafka: repetition, verification of a transaction's first batch, epoch, sequence, transaction; for a marker
   * coordinator and producer epoch.
   */
  judge(header: BatchHeader, append: ProducerAppend): ProducerVerdict {
    if (header.producerId < 0) return APPEND;
    const entry = this.#producers.get(header.producerId);
    if (append.marker !== undefined) return judgeMarker(header, append.marker, append.transactionVersion ?? 0, entry);
    const isFromCoordinator = append.origin === "coordinator";
    if (!isFromCoordinator && entry?.producerEpoch === header.producerEpoch) {
      const earlier = findBatch(entry, header);
      if (earlier !== undefined) {
        const { lastOffset, offsetDelta } = earlier;
        return { type: "duplicate", baseOffset: lastOffset - offsetDelta, lastOffset };
      }
    }
    // An unknown producer may begin anywhere: its earlier batches may have been deleted.
    if (entry !== undefined && header.producerEpoch < entry.producerEpoch)
      return { type: "refuse", error: epochRefusal(header, entry) };
    const transactional = isTransactional(header);
    const isOpen =
      entry?.transactionFirstOffset !== undefined && entry.producerEpoch === header.producerEpoch && transactional;
    if (transactional && !isOpen && append.origin === "client" && append.isTransactionVerified !== true)
      return refuseTransaction(header, "no transaction of the producer is open, and its coordinator was not asked");
    if (entry === undefined) return APPEND;
    if (!isFromCoordinator) {
      const error = sequenceRefusal(header, entry);
      if (error !== undefined) return { type: "refuse", error };
    }
    if (entry.transactionFirstOffset !== undefined && !transactional)
      return refuseTransaction(header, "the producer's transaction is open, and the batch is not of it");
    return APPEND;
  }

  /**
   * Takes a batch into account that is appended: as leader after `judge`, as follower or in recovery without, where everything the
   * leader decided is taken over, lower epochs too.
   * @param marker what `endTransactionMarkerOf` found in it
   */
  remember(header: BatchHeader, baseOffset: number, marker?: EndTransactionMarker): Remembered {
    const { producerId } = header;
    if (producerId < 0) return NOTHING_REMEMBERED;
    const before = this.#producers.get(producerId);
    if (isControlBatch(header)) return this.#rememberControl(header, baseOffset, marker, before);
    const isSameEpoch = before !== undefined && before.producerEpoch === header.producerEpoch;
    const lastOffset = baseOffset + header.lastOffsetDelta;
    const batch: RememberedBatch = {
      lastSequence: lastSequenceOf(header),
      lastOffset,
      offsetDelta: header.lastOffsetDelta,
      timestamp: header.maxTimestamp,
    };
    const open = before?.transactionFirstOffset;
    const opens = open === undefined && isTransactional(header);
    this.#producers.set(producerId, {
      producerEpoch: header.producerEpoch,
      batches: isSameEpoch ? [...before.batches.slice(1 - BATCHES_REMEMBERED), batch] : [batch],
      lastTimestamp: header.maxTimestamp,
      coordinatorEpoch: before?.coordinatorEpoch ?? -1,
      transactionFirstOffset: opens ? baseOffset : open,
    });
    if (opens) {
      this.#openTransactions ??= new Map();
      this.#openTransactions.set(baseOffset, producerId);
    }
    const undo = (): void => {
      if (opens) this.#openTransactions?.delete(baseOffset);
      this.#restore(producerId, before);
    };
    return { undo, aborted: undefined };
  }

  /**
   * The first offset that a reader of committed records may not see yet: where the oldest transaction begins that is open, or whose marker
   * is not below the high watermark. `undefined` when there is none.
   */
  firstUnstableOffset(highWatermark: number): number | undefined {
    let first: number | undefined = this.#openTransactions?.keys().next().value;
    for (const { firstOffset, markerOffset } of this.#completedTransactions) {
      if (markerOffset >= highWatermark && (first === undefined || firstOffset < first)) first = firstOffset;
    }
    return first;
  }

  /** Forgets the ended transactions whose marker every in-sync replica has. */
  releaseTransactions(highWatermark: number): void {
    const [oldest] = this.#completedTransactions;
    if (oldest === undefined || oldest.markerOffset >= highWatermark) return;
    this.#completedTransactions = this.#completedTransactions.filter(
      ({ markerOffset }) => markerOffset >= highWatermark,
    );
  }

  /**
   * Forgets producers of whom nothing was heard for long and that have no transaction open.
   * @param nowMs wall clock; measured against the timestamps in the batches, as Kafka does
   */
  expire(nowMs: number, expirationMs: number): void {
    for (const [producerId, entry] of this.#producers) {
      if (entry.transactionFirstOffset === undefined && nowMs - entry.lastTimestamp >= expirationMs)
        this.#producers.delete(producerId);
    }
  }

  /** The sequence that a producer's next batch must carry, or `undefined` when the log does not know the producer. */
  nextSequence(producerId: number): number | undefined {
    const last = this.#producers.get(producerId)?.batches.at(-1);
    return last === undefined ? undefined : incrementSequence(last.lastSequence, 1);
  }

  /**
   * Takes over from a state that was read from the log what a snapshot leaves out: all but the last batch of each producer.
   *
   * Kafka does without, and so answers a repetition of the batch before the last with OUT_OF_ORDER_SEQUENCE_NUMBER after a restart.
   */
  recall(fromLog: ProducerState): void {
    for (const [producerId, entry] of this.#producers) {
      const known = fromLog.#producers.get(producerId);
      const [last, seen] = [entry.batches.at(-1), known?.batches.at(-1)];
      if (last === undefined || seen === undefined || known?.producerEpoch !== entry.producerEpoch) continue;
      if (last.lastOffset === seen.lastOffset && last.lastSequence === seen.lastSequence)
        this.#producers.set(producerId, { ...entry, batches: known.batches });
    }
  }

  #rememberControl(
    header: BatchHeader,
    baseOffset: number,
    marker: EndTransactionMarker | undefined,
    before: ProducerEntry | undefined,
  ): Remembered {
    const { producerId } = header;
    if (marker === undefined) {
      if (before !== undefined) return NOTHING_REMEMBERED;
      // Emptied by compaction: Kafka knows the producer then, and nothing of it.
      const unknown = { producerEpoch: -1, batches: [], lastTimestamp: -1, coordinatorEpoch: -1 };
      this.#producers.set(producerId, { ...unknown, transactionFirstOffset: undefined });
      return { undo: () => this.#restore(producerId, undefined), aborted: undefined };
    }
    const { firstOffset, markerOffset } = {
      firstOffset: before?.transactionFirstOffset,
      markerOffset: baseOffset,
    };
    const [open, completed] = [this.#openTransactions, this.#completedTransactions];
    this.#producers.set(producerId, {
      producerEpoch: header.producerEpoch,
      batches: before !== undefined && before.producerEpoch === header.producerEpoch ? before.batches : [],
      lastTimestamp: header.maxTimestamp,
      coordinatorEpoch: marker.coordinatorEpoch,
      transactionFirstOffset: undefined,
    });
    let aborted: AbortedTransaction | undefined;
    if (firstOffset !== undefined) {
      // A new map: the one before is the way back.
      this.#openTransactions = new Map([...(open ?? [])].filter(([offset]) => offset !== firstOffset));
      this.#completedTransactions = [...completed, { firstOffset, markerOffset }];
      if (marker.type === "abort") {
        const lastStableOffset = this.#openTransactions.keys().next().value ?? markerOffset + 1;
        aborted = { producerId, firstOffset, lastOffset: markerOffset, lastStableOffset };
      }
    }
    const undo = (): void => {
      this.#openTransactions = open;
      this.#completedTransactions = completed;
      this.#restore(producerId, before);
    };
    return { undo, aborted };
  }

  #restore(producerId: number, before: ProducerEntry | undefined): void {
    if (before === undefined) this.#producers.delete(producerId);
    else this.#producers.set(producerId, before);
  }
}

function findBatch(entry: ProducerEntry, header: BatchHeader): RememberedBatch | undefined {
  if (header.baseSequence < 0) return undefined;
  const lastSequence = lastSequenceOf(header);
  // Equal ends and lengths: equal begins.
  return entry.batches.find(
    (batch) => batch.lastSequence === lastSequence && batch.offsetDelta === header.lastOffsetDelta,
  );
}

function sequenceRefusal(header: BatchHeader, entry: ProducerEntry): LogError | undefined {
  const { producerId, producerEpoch, baseSequence } = header;
  if (entry.producerEpoch < 0) return undefined;
  const last = producerEpoch === entry.producerEpoch ? entry.batches.at(-1) : undefined;
  const expectedSequence = last === undefined ? 0 : incrementSequence(last.lastSequence, 1);
  if (baseSequence === expectedSequence) return undefined;
  return new LogError({ code: "OUT_OF_ORDER_SEQUENCE_NUMBER", producerId, baseSequence, expectedSequence });
}

function judgeMarker(
  header: BatchHeader,
  marker: EndTransactionMarker,
  transactionVersion: number,
  entry: ProducerEntry | undefined,
): ProducerVerdict {
  if (entry === undefined) return APPEND;
  const { producerId, producerEpoch } = header;
  const isOpen = entry.transactionFirstOffset !== undefined;
  const mayRepeat = transactionVersion < 2 || !isOpen || producerEpoch === PRODUCER_EPOCH_MAX;
  if (producerEpoch < entry.producerEpoch || (producerEpoch === entry.producerEpoch && !mayRepeat))
    return { type: "refuse", error: epochRefusal(header, entry) };
  if (marker.coordinatorEpoch < entry.coordinatorEpoch) {
    const { coordinatorEpoch } = marker;
    const error = new LogError({
      code: "TRANSACTION_COORDINATOR_FENCED",
      producerId,
      coordinatorEpoch,
      currentEpoch: entry.coordinatorEpoch,
    });
    return { type: "refuse", error };
  }
  return APPEND;
}

function epochRefusal({ producerId, producerEpoch }: BatchHeader, entry: ProducerEntry): LogError {
  return new LogError({
    code: "INVALID_PRODUCER_EPOCH",
    producerId,
    producerEpoch,
    currentEpoch: entry.producerEpoch,
  });
}

function refuseTransaction({ producerId, producerEpoch }: BatchHeader, reason: string): ProducerVerdict {
  return {
    type: "refuse",
    error: new LogError({ code: "INVALID_TXN_STATE", producerId, producerEpoch, reason }),
  };
}

function lastSequenceOf(header: BatchHeader): number {
  return header.baseSequence < 0 ? -1 : incrementSequence(header.baseSequence, header.lastOffsetDelta);
}
