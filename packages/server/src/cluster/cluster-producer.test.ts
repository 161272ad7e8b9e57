import { PeerError, readBatchHeader } from "@tidemark/wire";
import type { PeerAddress, PeerErrorCode, PeerRequest, PeerResponse, PeerTransport } from "@tidemark/wire";
import { expect, test } from "vitest";
import { ClusterProducer } from "./cluster-producer.ts";

const CONTROLLER: PeerAddress = { nodeId: 0, host: "controller", port: 1 };

interface Attempt {
  readonly sequence: number;
  answer(error: PeerErrorCode): void;
  lose(): void;
}

/** A leader that answers a produce when the test says so. */
class Leader implements PeerTransport {
  readonly attempts: Attempt[] = [];
  nowMs = 0;

  request(_to: PeerAddress, request: PeerRequest): Promise<never> {
    if (request.kind === "describe") {
      const partitions = [{ topic: "orders", partition: 0, leader: 1 }];
      const json = JSON.stringify({ partitions, brokers: [{ brokerId: 1, host: "h", port: 1 }] });
      return Promise.resolve({ kind: "describe", error: "NONE", json } as never);
    }
    const batch = request.kind === "produce" ? request.partitions[0]?.batch : undefined;
    const scan = readBatchHeader(batch ?? new Uint8Array(0), 0);
    const sequence = scan.type === "batch" ? scan.header.baseSequence : -1;
    return new Promise<PeerResponse>((resolve, reject) => {
      const offsets = { baseOffset: sequence, lastOffset: sequence, leaderId: 1, leaderEpoch: 0 };
      this.attempts.push({
        sequence,
        answer: (error) =>
          resolve({ kind: "produce", partitions: [{ topic: "orders", partition: 0, error, ...offsets }] }),
        lose: () => reject(new PeerError("DISCONNECTED", "lost")),
      });
    }) as Promise<never>;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  /** The sequences asked for since the last call. */
  async asked(): Promise<number[]> {
    for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
    return this.attempts.map(({ sequence }) => sequence);
  }

  take(): Attempt {
    const attempt = this.attempts.shift();
    if (attempt === undefined) throw new Error("nothing was asked");
    return attempt;
  }
}

async function producing(): Promise<{
  leader: Leader;
  send: () => Promise<number | string>;
  producer: ClusterProducer;
}> {
  const leader = new Leader();
  const producer = new ClusterProducer({
    transport: leader,
    // Waits end at once: what has to come one after another must not rest on them.
    clock: {
      wallMs: () => 0,
      monotonicMs: () => leader.nowMs,
      setTimer: (_delayMs, fire) => {
        void Promise.resolve().then(fire);
        return { cancel: () => undefined };
      },
    },
    controller: CONTROLLER,
    topic: "orders",
    partition: 0,
    producerId: 7,
    acks: -1,
    requestTimeoutMs: 100,
    deliveryTimeoutMs: 1000,
    retryBackoffMs: 10,
  });
  await producer.ready();
  const send = (): Promise<number | string> =>
    producer.send([{ key: null, value: new Uint8Array(1), timestamp: 1 }]).then(
      ({ baseOffset }) => baseOffset,
      (error: { code?: string }) => error.code ?? "no code",
    );
  return { leader, send, producer };
}

test("a batch that failed is sent again only after the one before it: a new leader may know nothing of this producer", async () => {
  const { leader, send } = await producing();
  const sent = [send(), send(), send()];
  expect(await leader.asked()).toEqual([0, 1, 2]);
  for (const attempt of leader.attempts.splice(0)) attempt.answer("NOT_LEADER_OR_FOLLOWER");
  for (const sequence of [0, 1, 2]) {
    expect(await leader.asked()).toEqual([sequence]);
    leader.take().answer("NONE");
  }
  expect(await Promise.all(sent)).toEqual([0, 1, 2]);
});

test("while one is sent again the next ones wait for it; afterwards they go side by side again", async () => {
  const { leader, send } = await producing();
  const sent = [send()];
  await leader.asked();
  leader.take().lose();
  expect(await leader.asked()).toEqual([0]);
  sent.push(send(), send());
  expect(await leader.asked()).toEqual([0]);
  leader.take().answer("NONE");
  expect(await leader.asked()).toEqual([1]);
  leader.take().answer("NONE");
  expect(await leader.asked()).toEqual([2]);
  leader.take().answer("NONE");
  sent.push(send(), send());
  expect(await leader.asked()).toEqual([3, 4]);
  for (const attempt of leader.attempts.splice(0)) attempt.answer("NONE");
  expect(await Promise.all(sent)).toEqual([0, 1, 2, 3, 4]);
});

test("a lost answer acknowledges nothing", async () => {
  const { leader, send } = await producing();
  let outcome: number | string | undefined;
  const sent = send().then((offset) => (outcome = offset));
  await leader.asked();
  leader.take().lose();
  await leader.asked();
  expect(outcome).toBeUndefined();
  leader.take().answer("NONE");
  expect(await sent).toBe(0);
});

test("after a batch that was given up nothing is sent any more: the sequence would have a hole", async () => {
  const { leader, send } = await producing();
  const sent = [send(), send()];
  await leader.asked();
  leader.nowMs = 2000;
  for (const attempt of leader.attempts.splice(0)) attempt.lose();
  expect(await Promise.all(sent)).toEqual(["REQUEST_TIMED_OUT", "REQUEST_TIMED_OUT"]);
  expect(await send()).toBe("REQUEST_TIMED_OUT");
  expect(await leader.asked()).toEqual([]);
});
