import type { Clock } from "@tidemark/base";
import type { FetchRequest, FetchResponse, FetchPartitionResponse, PartitionName } from "@tidemark/wire";
import type { Partition } from "./partition.ts";
import { refusedFetch } from "./refusals.ts";

/** An answer takes no further partition once it holds this much, whatever was asked for: it has to fit a frame. */
const FETCH_RESPONSE_BYTES_MAX = 32 * 1024 ** 2;

/** Longest time that a fetch is parked, whatever was asked for. */
const FETCH_WAIT_MS_MAX = 30_000;

/**
 * Answers a fetch of several partitions: at once if there is something to tell, an error, a divergence or enough bytes; else it is
 * parked until one of them moves, at most as long as the request says, and then looked at again.
 *
 * The replica's progress counts once a request, with the first look.
 * Source: apache/kafka core/src/main/scala/kafka/server/{ReplicaManager,DelayedFetch}.scala
 */
export async function serveFetch(
  request: FetchRequest,
  context: {
    readonly clock: Clock;
    readonly partitionOf: (name: PartitionName) => Partition | undefined;
    readonly isClosed: () => boolean;
  },
): Promise<FetchResponse> {
  const { clock } = context;
  const deadlineMs = clock.monotonicMs() + Math.min(request.maxWaitMs, FETCH_WAIT_MS_MAX);
  for (let isFirstLook = true; ; isFirstLook = false) {
    const named = request.partitions.map((asked) => ({ asked, partition: context.partitionOf(asked) }));
    // Before the look, so that what moves during it is not missed.
    const waits = named.flatMap(({ partition }) => partition?.whenMoved() ?? []);
    const { answers, isWorthAnswering } = await lookAtAll(request, named, isFirstLook);
    const remainingMs = deadlineMs - clock.monotonicMs();
    if (isWorthAnswering || remainingMs <= 0 || context.isClosed()) {
      for (const wait of waits) wait.cancel();
      return { kind: "fetch", partitions: answers };
    }
    const timer = clock.setTimer(remainingMs, () => {
      for (const wait of waits) wait.cancel();
    });
    await Promise.race(waits.map(({ promise }) => promise));
    timer.cancel();
    for (const wait of waits) wait.cancel();
  }
}

async function lookAtAll(
  request: FetchRequest,
  named: readonly { asked: FetchRequest["partitions"][number]; partition: Partition | undefined }[],
  isFirstLook: boolean,
): Promise<{ answers: FetchPartitionResponse[]; isWorthAnswering: boolean }> {
  const fetcher = { replicaId: request.replicaId, brokerEpoch: request.brokerEpoch };
  const bytesMax = Math.min(request.maxBytes, FETCH_RESPONSE_BYTES_MAX);
  const answers: FetchPartitionResponse[] = [];
  let bytes = 0;
  let hasNews = named.length === 0;
  for (const { asked, partition } of named) {
    const { topic, partition: number } = asked;
    // A partition that finds no room is answered as if it had nothing: its turn comes with the next request.
    const maxBytes = Math.min(asked.maxBytes, Math.max(bytesMax - bytes, 0));
    const result =
      partition === undefined
        ? refusedFetch("UNKNOWN_TOPIC_OR_PARTITION")
        : await partition.fetch({ ...asked, maxBytes }, fetcher, isFirstLook);
    answers.push({ topic, partition: number, ...result });
    bytes += result.bytes.length;
    if (result.error !== "NONE" || result.divergingEpoch >= 0) hasNews = true;
  }
  return { answers, isWorthAnswering: hasNews || bytes >= Math.max(request.minBytes, 0) };
}
