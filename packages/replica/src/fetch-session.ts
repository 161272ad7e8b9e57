import type { BufferPool, Clock } from "@tidemark/base";
import { readBatchHeader } from "@tidemark/wire";
import type {
  AnswerRoom,
  FetchPartition,
  FetchPartitionResponse,
  FetchRequest,
  FetchResponse,
  PartitionName,
} from "@tidemark/wire";
import type { Partition } from "./partition.ts";
import { refusedFetch } from "./refusals.ts";
import type { PartitionFetchResult } from "./refusals.ts";
import { WakeSignal } from "./wake-signal.ts";

/** An answer takes no further partition once it holds this much, whatever was asked for: it has to fit a frame. */
const FETCH_RESPONSE_BYTES_MAX = 32 * 1024 ** 2;

/** Longest time that a fetch is parked, whatever was asked for. */
const FETCH_WAIT_MS_MAX = 30_000;

/**
 * Partitions of one fetch that are read at a time: as many as Node's thread pool serves. More would gain nothing, and what is read
 * beside the one that fills the answer is read in vain.
 */
export const FETCH_READS_MAX = 4;

/** A read that takes longer is slow: the partitions beside it are answered without it. */
export const SLOW_READ_MS = 100;

/** Slow reads of one partition that may be out for consumers. For a follower it is one: it asks for a partition once at a time. */
const SLOW_CONSUMER_READS_MAX = 16;

export interface FetchContext {
  readonly clock: Clock;
  /** Of the partitions. */
  readonly pool: BufferPool;
  readonly partitionOf: (name: PartitionName) => Partition | undefined;
  readonly isClosed: () => boolean;
  readonly reads: OpenReads;
  /** Of the connection that the answer goes to. Default: as much as is asked for. */
  readonly room?: AnswerRoom | undefined;
}

interface OpenRead {
  readonly partition: Partition;
  readonly replicaId: number;
  readonly startedMs: number;
}

/**
 * Reads that fetches have begun and the disk has not ended, whether or not somebody waits for them still.
 *
 * A disk that does not answer would else be asked again with every request, until nothing else of the process gets at a disk.
 */
export class OpenReads {
  readonly #reads = new Set<OpenRead>();

  begin(read: OpenRead): void {
    this.#reads.add(read);
  }

  end(read: OpenRead): void {
    this.#reads.delete(read);
  }

  /** Whether so many reads of the partition are slow that no other is begun for this fetcher. */
  isStuck(partition: Partition, replicaId: number, nowMs: number): boolean {
    const slowMax = replicaId >= 0 ? 1 : SLOW_CONSUMER_READS_MAX;
    let slow = 0;
    for (const read of this.#reads) {
      if (read.partition === partition && read.replicaId === replicaId && nowMs - read.startedMs >= SLOW_READ_MS)
        slow += 1;
    }
    return slow >= slowMax;
  }
}

/**
 * Answers a fetch of several partitions: at once if there is something to tell, an error, a divergence or enough bytes; else it is
 * parked until one of them moves, at most as long as the request says, and then looked at again.
 *
 * The partitions are read side by side, and answered in the order of the request, which is the order in which they get room. One
 * that is slow is waited for as long as the others have nothing to tell; else it is answered REQUEST_TIMED_OUT, and whoever asks
 * backs off with it alone. What the disk brings later is in the page cache when it is asked for again.
 *
 * Many requests of one connection may be here at a time, each allowed a large answer: what is read for all of them together is bounded
 * by the connection's room, which is taken for each look anew.
 *
 * The replica's progress counts once a request, with the first look.
 * Source: apache/kafka core/src/main/scala/kafka/server/{ReplicaManager,DelayedFetch}.scala
 */
export async function serveFetch(request: FetchRequest, context: FetchContext): Promise<FetchResponse> {
  const { clock } = context;
  const deadlineMs = clock.monotonicMs() + Math.min(request.maxWaitMs, FETCH_WAIT_MS_MAX);
  const readEnded = new WakeSignal();
  let looks: readonly Look[] = [];
  for (let isFirstLook = true; ; isFirstLook = false) {
    looks = request.partitions.map((asked, index) => looks[index]?.ifSlow() ?? new Look(asked, request, context));
    // Before the look, so that what moves during it is not missed.
    const news = new News(looks);
    const wantedBytes = bytesMaxOf(request);
    const bytesMax = context.room?.take(wantedBytes) ?? wantedBytes;
    try {
      const looking = lookAtAll(looks, { clock, readEnded, bytesMax, isFirstLook });
      if (looking !== undefined) await looking;
    } finally {
      context.room?.giveBack(bytesMax);
    }
    const { answers, isWorthAnswering } = answersOf(request, looks, bytesMax);
    const remainingMs = deadlineMs - clock.monotonicMs();
    if (isWorthAnswering || remainingMs <= 0 || context.isClosed()) {
      news.end();
      return { kind: "fetch", partitions: answers };
    }
    if (looks.some(({ result }) => result === undefined)) news.listenTo(readEnded);
    // A look that goes on keeps what it will have found.
    for (const { isSlow, result } of looks) if (!isSlow && result !== undefined) context.pool.giveBack(result.bytes);
    await news.come(clock, remainingMs);
  }
}

/** Whether any of the partitions of a fetch has moved since a look at them began. One promise for all of them. */
class News {
  readonly #ends: (() => void)[] = [];
  #hasCome = false;
  #tell: (() => void) | undefined;

  constructor(looks: readonly Look[]) {
    for (const { partition } of looks) if (partition !== undefined) this.#ends.push(partition.whenMoved(this.#come));
  }

  listenTo(signal: WakeSignal): void {
    this.#ends.push(signal.add(this.#come));
  }

  /** Resolves when something has moved, or the time is over; nothing is listened to then. */
  async come(clock: Clock, timeoutMs: number): Promise<void> {
    if (!this.#hasCome) {
      const timer = clock.setTimer(timeoutMs, this.#come);
      this.#ends.push(() => timer.cancel());
      await new Promise<void>((resolve) => {
        this.#tell = resolve;
      });
    }
    this.end();
  }

  end(): void {
    for (const end of this.#ends) end();
  }

  readonly #come = (): void => {
    this.#hasCome = true;
    this.#tell?.();
  };
}

/** At least one, so that the first batch of all comes, however large: a fetch that brings nothing for ever helps nobody. */
function bytesMaxOf({ maxBytes }: FetchRequest): number {
  return Math.max(1, Math.min(maxBytes, FETCH_RESPONSE_BYTES_MAX));
}

/** One partition of a fetch, looked at once. */
class Look {
  readonly asked: FetchPartition;
  readonly partition: Partition | undefined;
  /** `undefined` until it is known. */
  result: PartitionFetchResult | undefined;
  isSlow = false;
  readonly #request: FetchRequest;
  readonly #context: FetchContext;
  #isBegun = false;
  /** What the partition was when the read began. */
  #leadership: unknown;

  constructor(asked: FetchPartition, request: FetchRequest, context: FetchContext) {
    this.asked = asked;
    this.partition = context.partitionOf(asked);
    this.#request = request;
    this.#context = context;
  }

  get isBegun(): boolean {
    return this.#isBegun;
  }

  /** This look, if it is one that goes on or has just ended: a slow read is not begun again. */
  ifSlow(): this | undefined {
    if (!this.isSlow) return undefined;
    if (this.result !== undefined) this.isSlow = false;
    return this;
  }

  /**
   * @param maxBytes with 0 the replica's progress counts, and nothing is read
   * @returns `undefined` when the result is there at once; else when it is
   */
  read(maxBytes: number, countsProgress: boolean): Promise<void> | undefined {
    this.#isBegun = true;
    const { partition, asked } = this;
    const { replicaId, brokerEpoch } = this.#request;
    const { reads, clock } = this.#context;
    const startedMs = clock.monotonicMs();
    if (partition === undefined) this.result = refusedFetch("UNKNOWN_TOPIC_OR_PARTITION");
    else if (reads.isStuck(partition, replicaId, startedMs)) this.result = refusedFetch("REQUEST_TIMED_OUT");
    else {
      this.#leadership = partition.leaderState;
      const limits = { ...asked, maxBytes: Math.min(asked.maxBytes, maxBytes) };
      const result = partition.fetch(limits, { replicaId, brokerEpoch }, countsProgress);
      if (result instanceof Promise) return this.#take(result, { partition, replicaId, startedMs });
      this.result = result;
    }
    return undefined;
  }

  async #take(result: Promise<PartitionFetchResult>, read: OpenRead): Promise<void> {
    const { reads } = this.#context;
    reads.begin(read);
    try {
      this.result = await result;
    } finally {
      reads.end(read);
    }
  }

  /** As of now: what was read for an earlier role, while others were waited for, is not told. */
  current(): PartitionFetchResult {
    const { result, partition } = this;
    if (result === undefined) return refusedFetch("REQUEST_TIMED_OUT");
    if (result.error !== "NONE" || partition?.leaderState === this.#leadership) return result;
    return refusedFetch("NOT_LEADER_OR_FOLLOWER");
  }
}

interface LookOptions {
  readonly clock: Clock;
  readonly readEnded: WakeSignal;
  readonly bytesMax: number;
  readonly isFirstLook: boolean;
}

/** @returns when every partition was looked at, but for those whose reads are slow; `undefined`: they were at once */
function lookAtAll(looks: readonly Look[], options: LookOptions): Promise<void> | undefined {
  const [only] = looks;
  if (only === undefined || looks.length > 1) return lookSideBySide(looks, options);
  return only.read(options.bytesMax, options.isFirstLook); // There is nobody to hold up.
}

async function lookSideBySide(looks: readonly Look[], options: LookOptions): Promise<void> {
  const { clock, readEnded, bytesMax, isFirstLook } = options;
  const out = new Set<Look>();
  let bytes = 0;
  const takeResult = async (look: Look, reading: Promise<void>): Promise<void> => {
    out.add(look);
    const timer = clock.setTimer(SLOW_READ_MS, () => {
      look.isSlow = true;
      out.delete(look);
      readEnded.wake();
    });
    await reading;
    timer.cancel();
    out.delete(look);
    bytes += look.result?.bytes.length ?? 0;
    readEnded.wake();
  };
  for (const look of looks) {
    if (look.isBegun) continue;
    while (out.size >= FETCH_READS_MAX) await readEnded.wait().promise;
    // No more than a read after all before it would get: a partition that finds no room is answered as if it had nothing.
    const reading = look.read(Math.max(bytesMax - bytes, 0), isFirstLook);
    if (reading === undefined) bytes += look.result?.bytes.length ?? 0;
    else void takeResult(look, reading);
  }
  while (out.size > 0) await readEnded.wait().promise;
}

/** The first partitions of the request get room first; the first that has something gets at least one batch. */
function answersOf(
  request: FetchRequest,
  looks: readonly Look[],
  bytesMax: number,
): { answers: FetchPartitionResponse[]; isWorthAnswering: boolean } {
  let bytes = 0;
  let hasNews = looks.length === 0;
  const answers = looks.map((look): FetchPartitionResponse => {
    const { topic, partition } = look.asked;
    const result = look.current();
    const fitting = bytes === 0 ? result.bytes : cutTo(result.bytes, bytesMax - bytes);
    bytes += fitting.length;
    // A read that still goes on is no news; one that may not begin is.
    if (look.result !== undefined && (result.error !== "NONE" || result.divergingEpoch >= 0)) hasNews = true;
    const { error, highWatermark, logStartOffset, logEndOffset, divergingEpoch, divergingEndOffset } = result;
    return {
      topic,
      partition,
      error,
      highWatermark,
      logStartOffset,
      logEndOffset,
      divergingEpoch,
      divergingEndOffset,
      bytes: fitting,
    };
  });
  return { answers, isWorthAnswering: hasNews || bytes >= Math.max(request.minBytes, 0) };
}

/** What of the bytes has room: as many as fit, if that is a batch at least. */
function cutTo(bytes: Uint8Array, roomBytes: number): Uint8Array {
  if (bytes.length <= roomBytes) return bytes;
  const first = readBatchHeader(bytes, 0);
  const hasRoom = first.type === "batch" && first.header.sizeInBytes <= roomBytes;
  return bytes.subarray(0, hasRoom ? roomBytes : 0);
}
