import type { FetchRequest, PeerAddress, PeerRequest, PeerResponse } from "@tidemark/wire";
import { describe, expect, test } from "vitest";
import { Kernel } from "./kernel.ts";
import { drawMessageFaults, exponentialUs, QUIET } from "./message-network-faults.ts";
import type { MessageFacts } from "./message-network-faults.ts";
import { startMessageSwarm } from "./message-network-swarm.ts";
import { SimulatedMessageNetwork } from "./message-network.ts";
import type { MessageEvent, SimulatedPeer } from "./message-network.ts";
import { SimulatedRandom } from "./random.ts";

const TIMEOUT = { timeoutMs: 1_000 };

function addressOf(nodeId: number): PeerAddress {
  return { nodeId, host: `node-${nodeId}`, port: 9_000 };
}

function fetchAt(fetchOffset: number): FetchRequest {
  const partition = { topic: "t", partition: 0, currentLeaderEpoch: 1, flushedEndOffset: -1, lastFetchedEpoch: -1 };
  return {
    kind: "fetch",
    replicaId: 1,
    brokerEpoch: -1,
    maxWaitMs: 0,
    minBytes: 0,
    maxBytes: 10,
    partitions: [{ ...partition, fetchOffset, logStartOffset: 0, maxBytes: 10 }],
  };
}

function fetchOffsetOf(request: PeerRequest): number {
  return request.kind === "fetch" ? (request.partitions[0]?.fetchOffset ?? -1) : -1;
}

function fetchResponse(request: PeerRequest, bytes: Uint8Array): PeerResponse {
  const offsets = {
    logStartOffset: 0,
    logEndOffset: fetchOffsetOf(request),
    divergingEpoch: -1,
    divergingEndOffset: -1,
  };
  return {
    kind: "fetch",
    partitions: [{ topic: "t", partition: 0, error: "NONE", highWatermark: 0, ...offsets, bytes }],
  };
}

/** Nodes 1 .. count, each answering a fetch with its fetch offset as the log end offset, and noting what it was asked. */
function cluster(
  count: number,
  seed = 2,
): {
  readonly kernel: Kernel;
  readonly network: SimulatedMessageNetwork;
  readonly peers: SimulatedPeer[];
  readonly asked: number[];
  readonly events: (MessageFacts & { readonly event: MessageEvent })[];
  readonly serve: (peer: SimulatedPeer) => void;
} {
  const kernel = new Kernel({ seed });
  const network = new SimulatedMessageNetwork({ kernel, random: new SimulatedRandom(seed) });
  const asked: number[] = [];
  const events: (MessageFacts & { readonly event: MessageEvent })[] = [];
  network.onEvent = (event, message) => events.push({ ...message, event });
  const serve = (peer: SimulatedPeer): void =>
    peer.serve((request) => {
      asked.push(fetchOffsetOf(request));
      return Promise.resolve(fetchResponse(request, Uint8Array.of(peer.address.nodeId)));
    });
  const peers = Array.from({ length: count }, (_, index) => network.join(addressOf(index + 1)));
  for (const peer of peers) serve(peer);
  return { kernel, network, peers, asked, events, serve };
}

function pair(
  seed?: number,
): ReturnType<typeof cluster> & { readonly client: SimulatedPeer; readonly server: SimulatedPeer } {
  const made = cluster(2, seed);
  const [client, server] = made.peers;
  if (client === undefined || server === undefined) throw new Error("two peers were made");
  return { ...made, client, server };
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "answered",
    (error: { code?: string }) => error.code ?? "no code",
  );
}

describe("a quiet message network", () => {
  test("answers a request, in memory of its own", async () => {
    const { kernel, client, server } = pair();
    const bytes = Uint8Array.of(1, 2, 3);
    server.serve((request) => Promise.resolve(fetchResponse(request, bytes)));
    const response = await kernel.run(() => client.request(addressOf(2), fetchAt(7), TIMEOUT));
    expect(response.partitions[0]).toMatchObject({ logEndOffset: 7, error: "NONE" });
    expect(response.partitions[0]?.bytes).toEqual(bytes);
    expect(response.partitions[0]?.bytes.buffer).not.toBe(bytes.buffer);
  });

  test("what was stalled comes in its order, each message in an event of its own, before what is sent next", async () => {
    const { kernel, network, client, asked } = pair();
    network.clog(1, 2);
    await kernel.run(async () => {
      const requests = [0, 1, 2, 3].map((offset) => client.request(addressOf(2), fetchAt(offset), TIMEOUT));
      await new Promise<void>((resolve) => kernel.schedule(100_000, "test.wait", resolve));
      const before = kernel.eventCount;
      const perEvent: number[] = [];
      network.onEvent = (event, { type }) => {
        if (event === "delivered" && type === "request") perEvent.push(kernel.eventCount - before);
      };
      network.unclog(1, 2);
      await Promise.all([...requests, client.request(addressOf(2), fetchAt(4), TIMEOUT)]);
      expect(new Set(perEvent).size).toBe(5);
    });
    expect(asked).toEqual([0, 1, 2, 3, 4]);
  });

  test("keeps the order of a link, and answers overtake a parked request", async () => {
    const { kernel, client, server, asked } = pair();
    const release: (() => void)[] = [];
    server.serve(async (request) => {
      asked.push(fetchOffsetOf(request));
      if (fetchOffsetOf(request) === 0) await new Promise<void>((resolve) => release.push(resolve));
      return fetchResponse(request, new Uint8Array(0));
    });
    const answered: number[] = [];
    await kernel.run(async () => {
      const requests = Array.from({ length: 20 }, async (_, offset) => {
        await client.request(addressOf(2), fetchAt(offset), TIMEOUT);
        answered.push(offset);
        if (answered.length === 19) release[0]?.();
      });
      await Promise.all(requests);
    });
    expect(asked).toEqual(Array.from({ length: 20 }, (_, offset) => offset));
    expect(answered).toEqual([...Array.from({ length: 19 }, (_, offset) => offset + 1), 0]);
  });

  test("nobody there is UNREACHABLE, a closed transport CLOSED, too many requests QUEUE_FULL", async () => {
    const { kernel, network, client, server } = pair();
    server.serve(() => new Promise(() => undefined));
    const codes = await kernel.run(async () => {
      const unreachable = await codeOf(client.request(addressOf(9), fetchAt(0), TIMEOUT));
      const parked = Array.from({ length: network.inFlightMax }, () =>
        codeOf(client.request(addressOf(2), fetchAt(0), TIMEOUT)),
      );
      const full = await codeOf(client.request(addressOf(2), fetchAt(0), TIMEOUT));
      await client.close();
      return [
        unreachable,
        full,
        ...new Set(await Promise.all(parked)),
        await codeOf(client.request(addressOf(2), fetchAt(0), TIMEOUT)),
      ];
    });
    expect(codes).toEqual(["UNREACHABLE", "QUEUE_FULL", "CLOSED", "CLOSED"]);
  });
});

describe("scripted faults", () => {
  test("a partition loses messages both ways until it heals; a cut only one way", async () => {
    const { kernel, network, client, server, asked } = pair();
    const outcomes = await kernel.run(async () => {
      network.partition(1, 2);
      const apart = await codeOf(client.request(addressOf(2), fetchAt(1), TIMEOUT));
      network.heal(2, 1);
      const healed = await codeOf(client.request(addressOf(2), fetchAt(2), TIMEOUT));
      network.cut(2, 1);
      const noAnswer = await codeOf(client.request(addressOf(2), fetchAt(3), TIMEOUT));
      const noQuestion = await codeOf(server.request(addressOf(1), fetchAt(4), TIMEOUT));
      return [apart, healed, noAnswer, noQuestion];
    });
    expect(outcomes).toEqual(["TIMED_OUT", "answered", "TIMED_OUT", "TIMED_OUT"]);
    expect(asked).toEqual([2, 3]); // The request reached the node, only its answer did not come back.
  });

  test("a cut can be of one kind of message", async () => {
    const { kernel, network, client, server } = pair();
    server.serve((request) =>
      Promise.resolve(
        request.kind === "describe"
          ? { kind: "describe", error: "NONE", json: "{}" }
          : fetchResponse(request, new Uint8Array(0)),
      ),
    );
    network.cut(1, 2, "fetch");
    const outcomes = await kernel.run(async () => [
      await codeOf(client.request(addressOf(2), fetchAt(0), TIMEOUT)),
      await codeOf(client.request(addressOf(2), { kind: "describe" }, TIMEOUT)),
    ]);
    expect(outcomes).toEqual(["TIMED_OUT", "answered"]);
  });

  test("isolate cuts a node off from all others, who still see each other", async () => {
    const { kernel, network, peers } = cluster(3);
    const outcomes = await kernel.run(async () => {
      network.isolate(2);
      return Promise.all([
        codeOf(peers[0]?.request(addressOf(2), fetchAt(0), TIMEOUT) ?? Promise.resolve()),
        codeOf(peers[1]?.request(addressOf(3), fetchAt(0), TIMEOUT) ?? Promise.resolve()),
        codeOf(peers[2]?.request(addressOf(1), fetchAt(0), TIMEOUT) ?? Promise.resolve()),
      ]);
    });
    expect(outcomes).toEqual(["TIMED_OUT", "TIMED_OUT", "answered"]);
  });

  test("drop strikes by sender, type, kind and count", async () => {
    const { kernel, network, client, asked } = pair();
    const fault = network.drop({ from: 2, type: "response", kind: "fetch", skip: 1, count: 1 });
    const outcomes = await kernel.run(async () => {
      const codes: string[] = [];
      for (let offset = 0; offset < 3; offset++)
        codes.push(await codeOf(client.request(addressOf(2), fetchAt(offset), TIMEOUT)));
      return codes;
    });
    expect(outcomes).toEqual(["answered", "TIMED_OUT", "answered"]);
    expect(asked).toEqual([0, 1, 2]);
    expect(fault.hits).toBe(1);
  });

  test("a replayed request runs again later, also at the next process, and its answer reaches nobody", async () => {
    const { kernel, network, client, server, asked, events, serve } = pair();
    network.replay({ to: 2, count: 1 }, 5_000_000);
    await kernel.run(() => client.request(addressOf(2), fetchAt(3), TIMEOUT));
    server.crashProcess();
    serve(network.join(addressOf(2)));
    await kernel.runFor(10_000_000);
    expect(asked).toEqual([3, 3]);
    expect(events.map(({ event }) => event)).toEqual([
      "sent",
      "delivered",
      "sent",
      "delivered",
      "replayed",
      "sent",
      "late",
    ]);
  });

  test("the answer to a replayed request does not settle the request that still waits", async () => {
    const { kernel, network, client, asked } = pair();
    network.drop({ type: "response", count: 1 });
    network.replay({ to: 2, count: 1 }, 100_000);
    expect(await kernel.run(() => codeOf(client.request(addressOf(2), fetchAt(3), TIMEOUT)))).toBe("TIMED_OUT");
    expect(asked).toEqual([3, 3]);
  });

  test("a link with more messages under way than its capacity loses some of them, and no others", async () => {
    const { kernel, network, client, asked, events } = pair();
    network.setFaults({ capacity: 4, delayUsMin: 10_000 }, { from: 1, to: 2 });
    const outcomes = await kernel.run(() =>
      Promise.all(
        Array.from({ length: 20 }, (_, offset) => codeOf(client.request(addressOf(2), fetchAt(offset), TIMEOUT))),
      ),
    );
    expect(asked).toHaveLength(4);
    expect(events.filter(({ event }) => event === "overflowed")).toHaveLength(16);
    expect(outcomes.filter((outcome) => outcome === "answered")).toHaveLength(4);
  });

  test("a machine that is gone answers nothing to later requests either", async () => {
    const { kernel, client, server } = pair();
    server.crashMachine();
    expect(await kernel.run(() => codeOf(client.request(addressOf(2), fetchAt(0), TIMEOUT)))).toBe("TIMED_OUT");
  });

  test("held messages come in order once released, an answer after its time-out is late", async () => {
    const { kernel, network, client, asked, events } = pair();
    const held = network.hold({ type: "request", count: 2 });
    const outcomes = await kernel.run(async () => {
      const first = codeOf(client.request(addressOf(2), fetchAt(1), { timeoutMs: 100 }));
      const second = codeOf(client.request(addressOf(2), fetchAt(2), { timeoutMs: 10_000 }));
      const third = await codeOf(client.request(addressOf(2), fetchAt(3), TIMEOUT));
      const timedOut = await first;
      held.release();
      return [timedOut, await second, third];
    });
    expect(outcomes).toEqual(["TIMED_OUT", "answered", "answered"]);
    expect(asked).toEqual([3, 1, 2]);
    expect(events.filter(({ event }) => event === "late")).toHaveLength(1);
  });

  test("a clogged link delays and loses nothing", async () => {
    const { kernel, network, client } = pair();
    network.clog(1, 2, 700_000);
    const tookUs = await kernel.run(async () => {
      await Promise.all([1, 2, 3].map((offset) => client.request(addressOf(2), fetchAt(offset), TIMEOUT)));
      return kernel.nowUs;
    });
    expect(tookUs).toBeGreaterThan(700_000);
    expect(tookUs).toBeLessThan(720_000);
  });

  test("a dead process is DISCONNECTED at once, a dead machine TIMED_OUT; promises of the dead stay open", async () => {
    const { kernel, peers } = cluster(3);
    const [client, dies, vanishes] = peers;
    let ofTheDead = "open";
    for (const peer of peers) peer.serve(() => new Promise(() => undefined));
    const outcomes = await kernel.run(async () => {
      const toProcess = codeOf(client?.request(addressOf(2), fetchAt(0), { timeoutMs: 60_000 }) ?? Promise.resolve());
      const toMachine = codeOf(client?.request(addressOf(3), fetchAt(0), { timeoutMs: 60_000 }) ?? Promise.resolve());
      void codeOf(dies?.request(addressOf(1), fetchAt(0), TIMEOUT) ?? Promise.resolve()).then(
        (code) => (ofTheDead = code),
      );
      kernel.schedule(5_000, "test.crash", () => {
        dies?.crashProcess();
        vanishes?.crashMachine();
      });
      const disconnected = await toProcess;
      const disconnectedUs = kernel.nowUs;
      return [disconnected, disconnectedUs < 20_000, await toMachine];
    });
    expect(outcomes).toEqual(["DISCONNECTED", true, "TIMED_OUT"]);
    expect(ofTheDead).toBe("open");
  });

  test("a request to a process that crashed meanwhile does not reach the next one", async () => {
    const { kernel, network, client, server, asked, serve } = pair();
    network.setFaults({ delayUsMin: 50_000 }, { from: 1, to: 2 });
    const outcome = await kernel.run(async () => {
      const request = codeOf(client.request(addressOf(2), fetchAt(0), TIMEOUT));
      server.crashProcess();
      serve(network.join(addressOf(2)));
      return request;
    });
    await kernel.runFor(1_000_000);
    expect(outcome).toBe("DISCONNECTED");
    expect(asked).toEqual([]);
  });
});

describe("seeded faults", () => {
  async function run(
    seed: number,
    isSwarm: boolean,
  ): Promise<{ readonly hash: number; readonly events: string; readonly outcomes: string[] }> {
    const { kernel, network, peers, events } = cluster(3, seed);
    const swarm = isSwarm ? startMessageSwarm(network) : undefined;
    const outcomes: string[] = [];
    await kernel.run(async () => {
      const clients = peers.map(async (peer, index) => {
        for (let offset = 0; offset < 60; offset++) {
          outcomes.push(
            await codeOf(peer.request(addressOf(1 + ((index + 1 + (offset % 2)) % 3)), fetchAt(offset), TIMEOUT)),
          );
        }
      });
      await Promise.all(clients);
      swarm?.stop();
    });
    return { hash: kernel.traceHash, events: JSON.stringify(events), outcomes };
  }

  test("one seed run twice is the same, event for event; another seed is not", async () => {
    for (const seed of [4, 5, 6, 7]) expect(await run(seed, true)).toEqual(await run(seed, true));
    expect((await run(4, true)).hash).not.toBe((await run(5, true)).hash);
  });

  test("over some seeds every class of fault happens, and some seeds answer everything", async () => {
    const seen = new Set<string>();
    for (let seed = 0; seed < 60; seed++) {
      const { events, outcomes } = await run(seed, true);
      for (const event of ["dropped", "cut", "overflowed", "replayed", "late", "corrupted"])
        if (events.includes(`"${event}"`)) seen.add(event);
      for (const outcome of outcomes) seen.add(outcome);
      if (new Set(outcomes).size === 1) seen.add("whole");
    }
    expect([...seen].sort()).toEqual([
      "DISCONNECTED",
      "PROTOCOL",
      "TIMED_OUT",
      "answered",
      "corrupted",
      "cut",
      "dropped",
      "late",
      "overflowed",
      "replayed",
      "whole",
    ]);
  });

  test("after stop every request is answered again", async () => {
    for (let seed = 0; seed < 20; seed++) {
      const { kernel, network, client } = pair(seed);
      const swarm = startMessageSwarm(network);
      await kernel.runFor(60_000_000);
      swarm.stop();
      await kernel.runFor(60_000_000);
      expect(await kernel.run(() => codeOf(client.request(addressOf(2), fetchAt(0), TIMEOUT)))).toBe("answered");
    }
  });

  test("a bit that changes on the way closes the connection: its requests go, nothing wrong is taken", async () => {
    const { kernel, network, client, server, asked } = pair();
    const events: string[] = [];
    network.onEvent = (event, { type }) => events.push(`${type} ${event}`);
    server.serve((request) => {
      asked.push(0);
      return Promise.resolve(fetchResponse(request, new Uint8Array(500)));
    });
    const corrupt = { corruptPerMille: 1_000 };
    network.setFaults(corrupt, { from: 2, to: 1 });
    const bothOf = (): Promise<string[]> =>
      Promise.all([0, 1].map((offset) => codeOf(client.request(addressOf(2), fetchAt(offset), TIMEOUT))));
    expect(await kernel.run(bothOf)).toEqual(["PROTOCOL", "PROTOCOL"]);
    expect(events.filter((event) => event === "response corrupted")).toHaveLength(1);
    expect(asked).toHaveLength(2);

    network.setFaults(QUIET);
    network.setFaults(corrupt, { from: 1, to: 2 });
    expect(await kernel.run(bothOf)).toEqual(["DISCONNECTED", "DISCONNECTED"]);
    expect(asked).toHaveLength(2);
    network.setFaults(QUIET);
    expect(await kernel.run(bothOf)).toEqual(["answered", "answered"]);
  });

  test("messages overtake each other only where that fault is on", async () => {
    const order = async (overtakePerMille: number): Promise<number[]> => {
      const { kernel, network, client, asked } = pair();
      network.setFaults({ overtakePerMille, delayUsMean: 100_000 });
      await kernel.run(() =>
        Promise.all(
          Array.from({ length: 40 }, (_, offset) =>
            client.request(addressOf(2), fetchAt(offset), { timeoutMs: 60_000 }),
          ),
        ),
      );
      return asked;
    };
    const sorted = Array.from({ length: 40 }, (_, offset) => offset);
    expect(await order(0)).toEqual(sorted);
    const overtaken = await order(500);
    expect(overtaken).not.toEqual(sorted);
    expect([...overtaken].sort((first, second) => first - second)).toEqual(sorted);
  });

  test("delays follow the exponential distribution: mean and quartiles within 5 %", () => {
    const random = new SimulatedRandom(11);
    const delays = Array.from({ length: 40_000 }, () => exponentialUs(random.uint32("x"), 10_000)).sort(
      (a, b) => a - b,
    );
    const mean = delays.reduce((sum, delay) => sum + delay, 0) / delays.length;
    expect(mean / 10_000).toBeCloseTo(1, 1);
    for (const quantile of [0.25, 0.5, 0.75, 0.95]) {
      const expected = -Math.log(1 - quantile) * 10_000;
      expect(Math.abs((delays[Math.floor(quantile * delays.length)] ?? 0) / expected - 1)).toBeLessThan(0.05);
    }
  });

  test("the swarm leaves each class of fault off in about half of the seeds", () => {
    const drawn = Array.from({ length: 400 }, (_, seed) => drawMessageFaults(new SimulatedRandom(seed)));
    for (const name of [
      "dropPerMille",
      "replayPerMille",
      "overtakePerMille",
      "clogPerMille",
      "tailPerMille",
      "corruptPerMille",
    ] as const) {
      const offCount = drawn.filter((faults) => faults[name] === 0).length;
      expect(offCount).toBeGreaterThan(150);
      expect(offCount).toBeLessThan(250);
    }
  });
});
