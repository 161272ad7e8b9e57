import type { BufferPool, Clock, Timer } from "@tidemark/base";
import { giveBackBatches } from "@tidemark/wire";
import type {
  FetchResponse,
  OffsetsForLeaderEpochPartitionResponse,
  PartitionName,
  PeerAddress,
  PeerTransport,
} from "@tidemark/wire";
import type { FollowerInput, FollowerRequest } from "./follower-state.ts";
import type { Partition } from "./partition.ts";

/** Requests to one leader that may be out at a time. A parked fetch is one; partitions that become ready meanwhile go with the next. */
const FETCHES_IN_FLIGHT_MAX = 64;

export interface FetcherOptions {
  readonly brokerId: number;
  readonly leaderId: number;
  readonly brokerEpoch: () => number;
  /** Where the leader is now, or `undefined` when that is not known. */
  readonly address: () => PeerAddress | undefined;
  readonly transport: PeerTransport;
  readonly clock: Clock;
  /** Where the transport takes the memory of answers from. */
  readonly pool: BufferPool;
  /** Kafka: replica.fetch.wait.max.ms, .min.bytes, .response.max.bytes, .max.bytes. */
  readonly maxWaitMs: number;
  readonly minBytes: number;
  readonly maxBytes: number;
  readonly partitionMaxBytes: number;
  /** Added to the wait before a request counts as lost. */
  readonly requestTimeoutMs: number;
}

/** Whoever waits for it goes on when the present turn is over. */
const SOON = Promise.resolve();

interface Asked<Request extends FollowerRequest = FollowerRequest> {
  readonly partition: Partition;
  readonly leaderEpoch: number;
  readonly request: Request;
}

/**
 * Fetches, for all partitions that follow one broker, over its one connection.
 *
 * Partitions that have something to ask go into one request together; one that is busy appending, waits or failed is not in it and
 * holds nobody up. Each partition is in at most one request at a time, so an answer meets the state that asked.
 */
export class LeaderFetcher {
  readonly #options: FetcherOptions;
  readonly #partitions = new Set<Partition>();
  #inFlight = 0;
  #isPumping = false;
  #isPaused = false;
  #isClosed = false;
  #retry: Timer | undefined;

  constructor(options: FetcherOptions) {
    this.#options = options;
  }

  get partitionCount(): number {
    return this.#partitions.size;
  }

  /** Something was asked that is not answered yet. */
  get isAsking(): boolean {
    return this.#inFlight > 0;
  }

  add(partition: Partition): void {
    this.#partitions.add(partition);
    this.pump();
  }

  remove(partition: Partition): void {
    this.#partitions.delete(partition);
  }

  /** No new request goes out until `resume`; those that are out are answered. */
  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.pump();
  }

  close(): void {
    this.#isClosed = true;
    this.#retry?.cancel();
    this.#partitions.clear();
  }

  /** Sends what can be sent; callers of one turn share a request. */
  pump(): void {
    if (this.#isPumping || this.#isClosed) return;
    this.#isPumping = true;
    void SOON.then(this.#sendSoon);
  }

  readonly #sendSoon = (): void => {
    this.#isPumping = false;
    this.#send();
  };

  #send(): void {
    this.#retry?.cancel();
    this.#retry = undefined;
    if (this.#isClosed || this.#isPaused || this.#inFlight >= FETCHES_IN_FLIGHT_MAX) return;
    const nowMs = this.#options.clock.monotonicMs();
    const address = this.#options.address();
    if (address === undefined) return;
    const epochs: Asked<FollowerRequest & { type: "epoch" }>[] = [];
    const fetches: Asked<FollowerRequest & { type: "fetch" }>[] = [];
    let retryMs = Number.POSITIVE_INFINITY;
    for (const partition of this.#partitions) {
      // It failed, and follows somebody else since, or nobody: its question is not for this leader.
      if (partition.followerState?.leaderId !== this.#options.leaderId) {
        this.#partitions.delete(partition);
        continue;
      }
      retryMs = Math.min(retryMs, partition.followerState.waitsUntilMs(nowMs) ?? Number.POSITIVE_INFINITY);
      const taken = partition.takeRequest(nowMs);
      if (taken === undefined) continue;
      const { leaderEpoch, request } = taken;
      if (request.type === "epoch") epochs.push({ partition, leaderEpoch, request });
      else fetches.push({ partition, leaderEpoch, request });
    }
    if (Number.isFinite(retryMs))
      this.#retry = this.#options.clock.setTimer(Math.max(retryMs - nowMs, 1), () => this.pump());
    if (epochs.length > 0) void this.#askEpochs(address, epochs);
    if (fetches.length > 0) void this.#fetch(address, fetches);
  }

  async #askEpochs(address: PeerAddress, asked: readonly Asked<FollowerRequest & { type: "epoch" }>[]): Promise<void> {
    const { brokerId, brokerEpoch, transport, requestTimeoutMs } = this.#options;
    const partitions = asked.map(({ partition, leaderEpoch, request }) => ({
      topic: partition.topic,
      partition: partition.partition,
      currentLeaderEpoch: leaderEpoch,
      leaderEpoch: request.leaderEpoch,
    }));
    let answers: readonly OffsetsForLeaderEpochPartitionResponse[];
    this.#inFlight += 1;
    try {
      const response = await transport.request(
        address,
        { kind: "offsetsForLeaderEpoch", replicaId: brokerId, brokerEpoch: brokerEpoch(), partitions },
        { timeoutMs: requestTimeoutMs },
      );
      answers = response.partitions;
    } catch {
      answers = [];
    }
    this.#inFlight -= 1;
    void this.#deliver(asked, answers, (answer, request, nowMs) => ({
      type: "epochAnswer",
      request,
      nowMs,
      ...answer,
    }));
    this.pump();
  }

  async #fetch(address: PeerAddress, asked: readonly Asked<FollowerRequest & { type: "fetch" }>[]): Promise<void> {
    const { brokerId, brokerEpoch, transport, requestTimeoutMs, maxWaitMs, minBytes, maxBytes, partitionMaxBytes } =
      this.#options;
    const partitions = asked.map(({ partition, leaderEpoch, request }) => ({
      topic: partition.topic,
      partition: partition.partition,
      currentLeaderEpoch: leaderEpoch,
      fetchOffset: request.fetchOffset,
      flushedEndOffset: request.flushedEndOffset,
      lastFetchedEpoch: request.lastFetchedEpoch,
      logStartOffset: request.logStartOffset,
      maxBytes: partitionMaxBytes,
    }));
    let response: FetchResponse | undefined;
    this.#inFlight += 1;
    try {
      const request = {
        kind: "fetch",
        replicaId: brokerId,
        brokerEpoch: brokerEpoch(),
        maxWaitMs,
        minBytes,
        maxBytes,
        partitions,
      } as const;
      response = await transport.request(address, request, { timeoutMs: maxWaitMs + requestTimeoutMs });
    } catch {
      // No answer: every partition hears that.
    }
    this.#inFlight -= 1;
    const answers = response?.partitions ?? [];
    const taken = this.#deliver(asked, answers, (answer, request, nowMs) => ({
      type: "fetchAnswer",
      request,
      nowMs,
      error: answer.error,
      highWatermark: answer.highWatermark,
      logStartOffset: answer.logStartOffset,
      logEndOffset: answer.logEndOffset,
      divergingEpoch: answer.divergingEpoch,
      divergingEndOffset: answer.divergingEndOffset,
      bytes: answer.bytes,
    }));
    // What a partition appends is written from the answer's own memory.
    if (response !== undefined && taken.length === 0) giveBackBatches(response, this.#options.pool);
    else if (response !== undefined) void this.#giveBackAfter(taken, response);
    this.pump();
  }

  async #giveBackAfter(taken: readonly Promise<void>[], response: FetchResponse): Promise<void> {
    await Promise.all(taken);
    giveBackBatches(response, this.#options.pool);
  }

  /**
   * Tells each partition its answer. One that is not in it, and all when none came, hear that the request failed.
   * @returns for each partition that is not done with its answer yet, when it will be
   */
  #deliver<Answer extends PartitionName>(
    asked: readonly Asked[],
    answers: readonly Answer[],
    inputOf: (answer: Answer, request: FollowerRequest, nowMs: number) => FollowerInput,
  ): Promise<void>[] {
    const nowMs = this.#options.clock.monotonicMs();
    const byName = new Map(answers.map((answer) => [keyOf(answer), answer]));
    const taken: Promise<void>[] = [];
    for (const { partition, request } of asked) {
      const answer = byName.get(keyOf(partition));
      const done = partition.answered(
        answer === undefined ? { type: "requestFailed", request, nowMs } : inputOf(answer, request, nowMs),
      );
      if (done !== undefined) taken.push(done);
    }
    return taken;
  }
}

/** Topic names hold no `/`. */
export function keyOf({ topic, partition }: PartitionName): string {
  return `${topic}/${partition}`;
}
