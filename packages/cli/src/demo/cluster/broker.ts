import { DEFAULT_LOG_CONFIG } from "@tidemark/log";
import { DEFAULT_REPLICA_MANAGER_CONFIG } from "@tidemark/replica";
import { Broker } from "@tidemark/server";

import { describeError, EXIT_CANNOT, EXIT_OK } from "../../errors.ts";
import { asChild, tellParent } from "../child-process.ts";
import type { BrokerMessage, BrokerRequest, BrokerTask } from "./broker-messages.ts";

const FETCH_BACKOFF_MS = 25;
const CLUSTER_STATE_WAIT_MS = 500;
const HIGH_WATERMARK_CHECKPOINT_MS = 1000;
const HOLD_WAIT_MS = 1500;
const HOLD_POLL_MS = 5;

/**
 * One broker of the demo, a process of its own: does what its parent says, tells it what it cuts from its log.
 * @returns the exit code
 */
export function runBroker(task: BrokerTask): Promise<number> {
  return asChild(
    () => serve(task),
    (error) => tell({ type: "failed", line: describeError(error) }),
    EXIT_CANNOT,
  );
}

async function serve(task: BrokerTask): Promise<number> {
  const startMs = performance.now();
  const requests = new Requests();
  const broker = await Broker.open({
    directory: task.directory,
    brokerId: task.brokerId,
    clusterId: task.clusterId,
    controller: task.controller,
    topicConfig: {
      ...DEFAULT_LOG_CONFIG,
      segmentBytes: task.segmentBytes,
      maxMessageBytes: task.maxMessageBytes,
      flush: "none",
      compression: "none",
    },
    config: {
      replica: { ...DEFAULT_REPLICA_MANAGER_CONFIG.replica, minInsyncReplicas: task.minInsyncReplicas },
      flushIntervalMs: task.flushIntervalMs,
      fetchMaxWaitMs: task.fetchMaxWaitMs,
      // A new leader first makes its epoch durable; a follower that hears of it earlier asks in vain, and soon again.
      fetchBackoffMs: FETCH_BACKOFF_MS,
      // Well within the controller's session time-out, on a busy machine too: each is a sign of life.
      clusterStateWaitMs: CLUSTER_STATE_WAIT_MS,
      highWatermarkCheckpointMs: HIGH_WATERMARK_CHECKPOINT_MS,
    },
    onTruncated: (report) => void tell({ type: "truncated", report }),
    onFailed: (_name, reason) => void tell({ type: "replicaFailed", reason }),
  });
  await tell({ type: "opened", openMs: performance.now() - startMs });
  for (;;) {
    const { id, command } = await requests.next();
    if (command === "hold") await hold(broker);
    else if (command === "resume") broker.manager.resumeFetching();
    else if (command === "shutDown") break;
    await tell({ type: "answer", id, replicas: broker.describe() });
  }
  const { isClean } = await broker.close();
  await tell({ type: "closed", isClean });
  return EXIT_OK;
}

/** From here on nothing is fetched, and a fetch that waits at the leader brings nothing any more, unless that is too slow to tell. */
async function hold({ manager }: Broker): Promise<void> {
  manager.pauseFetching();
  const deadlineMs = performance.now() + HOLD_WAIT_MS;
  while (manager.isAsking && performance.now() < deadlineMs)
    await new Promise((resolve) => setTimeout(resolve, HOLD_POLL_MS));
}

/** What the parent asks, in order. */
class Requests {
  readonly #waiting: BrokerRequest[] = [];
  #wake: (() => void) | undefined;

  constructor() {
    process.on("message", (request: BrokerRequest) => {
      this.#waiting.push(request);
      this.#wake?.();
    });
  }

  async next(): Promise<BrokerRequest> {
    for (;;) {
      const request = this.#waiting.shift();
      if (request !== undefined) return request;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

function tell(message: BrokerMessage): Promise<void> {
  return tellParent(message);
}
