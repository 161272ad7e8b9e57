import { describe, expect } from "vitest";
import type { ByteStream, Network, NetworkErrorCode, NetworkListener } from "@tidemark/base";
import { NetworkError } from "@tidemark/base";
import type { Fixture } from "./fixture.ts";
import { contractTest, expectSameBytes, patternBytes } from "./fixture.ts";

export interface NetworkFixture extends Fixture {
  readonly network: Network;
  /** Lets time go by, and whatever the network does of itself happen. */
  readonly pass: (ms: number) => Promise<void>;
}

type MakeFixture = () => Promise<NetworkFixture>;

const TIMEOUT_MS = 10_000;

/** What came out of a stream, and a way to wait for it. */
class Receiver {
  readonly stream: ByteStream;
  readonly #chunks: Uint8Array[] = [];
  readonly #waiters: { readonly isReady: () => boolean; readonly resolve: () => void }[] = [];
  receivedBytes = 0;
  ends: (NetworkError | undefined)[] = [];

  constructor(stream: ByteStream) {
    this.stream = stream;
    stream.start({
      onData: (chunk) => {
        this.#chunks.push(chunk.slice());
        this.receivedBytes += chunk.length;
        this.#wake();
      },
      onEnd: (error) => {
        this.ends.push(error);
        this.#wake();
      },
    });
  }

  get bytes(): Uint8Array {
    const joined = new Uint8Array(this.receivedBytes);
    let position = 0;
    for (const chunk of this.#chunks) {
      joined.set(chunk, position);
      position += chunk.length;
    }
    return joined;
  }

  get chunkSizes(): readonly number[] {
    return this.#chunks.map((chunk) => chunk.length);
  }

  bytesReach(count: number): Promise<void> {
    return this.#until(() => this.receivedBytes >= count);
  }

  ended(): Promise<void> {
    return this.#until(() => this.ends.length > 0);
  }

  #until(isReady: () => boolean): Promise<void> {
    if (isReady()) return Promise.resolve();
    return new Promise((resolve) => this.#waiters.push({ isReady, resolve }));
  }

  #wake(): void {
    for (const waiter of this.#waiters) if (waiter.isReady()) waiter.resolve();
  }
}

interface Pair {
  readonly client: ByteStream;
  readonly server: ByteStream;
  readonly listener: NetworkListener;
}

async function connectedPair(network: Network): Promise<Pair> {
  const accepted: ((stream: ByteStream) => void)[] = [];
  const server = new Promise<ByteStream>((resolve) => accepted.push(resolve));
  const listener = await network.listen({ port: 0 }, (stream) => accepted[0]?.(stream));
  const client = await network.connect({ host: listener.host, port: listener.port }, { timeoutMs: TIMEOUT_MS });
  return { client, server: await server, listener };
}

async function expectNetworkError(
  call: () => Promise<unknown>,
  codes: readonly NetworkErrorCode[],
  operation: string,
): Promise<void> {
  const error = await call().then(
    () => expect.fail(`should reject with ${codes.join(" or ")}`),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(NetworkError);
  if (!(error instanceof NetworkError)) return;
  expect(codes).toContain(error.code);
  expect(error.operation).toBe(operation);
}

/** The contract of `Network`, `NetworkListener` and `ByteStream`. */
export function describeNetwork(name: string, makeFixture: MakeFixture): void {
  describe(`Network: ${name}`, () => {
    listenTests(makeFixture);
    transferTests(makeFixture);
    roomTests(makeFixture);
    endTests(makeFixture);
  });
}

function listenTests(makeFixture: MakeFixture): void {
  contractTest(makeFixture, "port 0 gives a port of its own to each listener, on loopback", async ({ network }) => {
    const first = await network.listen({ port: 0 }, () => undefined);
    const second = await network.listen({ port: 0 }, () => undefined);
    expect(first.port).toBeGreaterThan(0);
    expect(second.port).not.toBe(first.port);
    expect(first.host).toBe("127.0.0.1");
    await first.close();
    await second.close();
  });

  contractTest(
    makeFixture,
    "a port in use is EADDRINUSE, and free again once its listener is closed",
    async ({ network }) => {
      const first = await network.listen({ port: 0 }, () => undefined);
      const { port } = first;
      await expectNetworkError(() => network.listen({ port }, () => undefined), ["EADDRINUSE"], "listen");
      await first.close();
      await first.close();
      const second = await network.listen({ port }, () => undefined);
      expect(second.port).toBe(port);
      await second.close();
    },
  );

  contractTest(makeFixture, "a host of another machine is EADDRNOTAVAIL", async ({ network }) => {
    await expectNetworkError(
      () => network.listen({ host: "192.0.2.1", port: 0 }, () => undefined),
      ["EADDRNOTAVAIL"],
      "listen",
    );
  });

  contractTest(makeFixture, "a port where nobody listens is ECONNREFUSED", async ({ network }) => {
    const listener = await network.listen({ port: 0 }, () => undefined);
    await listener.close();
    const address = { host: listener.host, port: listener.port };
    await expectNetworkError(() => network.connect(address, { timeoutMs: TIMEOUT_MS }), ["ECONNREFUSED"], "connect");
  });

  contractTest(makeFixture, "streams accepted before the listener closes go on", async ({ network }) => {
    const { client, server, listener } = await connectedPair(network);
    await listener.close();
    const receiver = new Receiver(server);
    await client.write([patternBytes(1_000)]);
    await receiver.bytesReach(1_000);
    expectSameBytes(receiver.bytes, patternBytes(1_000));
    client.destroy();
    server.destroy();
  });
}

function transferTests(makeFixture: MakeFixture): void {
  contractTest(makeFixture, "bytes arrive in order in both directions at once", async ({ network }) => {
    const { client, server, listener } = await connectedPair(network);
    const there = new Receiver(server);
    const back = new Receiver(client);
    const parts = [patternBytes(1, 1), patternBytes(70_000, 2), new Uint8Array(0), patternBytes(300_000, 3)];
    const writes: Promise<void>[] = [];
    for (const part of parts) writes.push(client.write([part]), server.write([part, part]));
    await Promise.all(writes);
    await there.bytesReach(370_001);
    await back.bytesReach(740_002);
    const once = [0, 1, 3].map((index) => parts[index] ?? new Uint8Array(0));
    expectSameBytes(there.bytes, joined(once));
    expectSameBytes(back.bytes, joined(once.flatMap((part) => [part, part])));
    expect(there.chunkSizes.every((size) => size > 0)).toBe(true);
    for (const stream of [client, server]) stream.destroy();
    await listener.close();
  });

  contractTest(makeFixture, "what was written before the other end starts waits for it", async ({ network, pass }) => {
    const { client, server, listener } = await connectedPair(network);
    await client.write([patternBytes(5_000)]);
    await pass(20);
    const receiver = new Receiver(server);
    await receiver.bytesReach(5_000);
    expectSameBytes(receiver.bytes, patternBytes(5_000));
    for (const stream of [client, server]) stream.destroy();
    await listener.close();
  });

  contractTest(makeFixture, "received chunks stay as they are: their memory is not used again", async ({ network }) => {
    const { client, server, listener } = await connectedPair(network);
    const receiver = new Receiver(server);
    for (let round = 0; round < 40; round++) {
      await client.write([patternBytes(20_000, round)]);
      await receiver.bytesReach(20_000 * (round + 1));
    }
    expectSameBytes(receiver.bytes, joined(Array.from({ length: 40 }, (_, round) => patternBytes(20_000, round))));
    for (const stream of [client, server]) stream.destroy();
    await listener.close();
  });
}

function roomTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "a paused reader gets nothing, and its writer runs out of room until it goes on",
    async ({ network, pass }) => {
      const { client, server, listener } = await connectedPair(network);
      const receiver = new Receiver(server);
      server.pause();
      let writtenBytes = 0;
      let hasRoom = true;
      let lastWrite = Promise.resolve(true);
      // Far more than a kernel buffers for one connection.
      while (hasRoom && writtenBytes < 256 * 1024 * 1024) {
        hasRoom = false;
        lastWrite = client.write([patternBytes(1024 * 1024)]).then(() => (hasRoom = true));
        writtenBytes += 1024 * 1024;
        await pass(50);
      }
      expect(hasRoom).toBe(false);
      expect(receiver.receivedBytes).toBe(0);
      server.resume();
      await receiver.bytesReach(writtenBytes);
      expect(await lastWrite).toBe(true);
      for (const stream of [client, server]) stream.destroy();
      await listener.close();
    },
  );

  contractTest(makeFixture, "pausing inside onData holds the next chunk back", async ({ network, pass }) => {
    const { client, server, listener } = await connectedPair(network);
    let chunks = 0;
    let receivedBytes = 0;
    const done = new Promise<void>((resolve) => {
      server.start({
        onData: (chunk) => {
          chunks++;
          receivedBytes += chunk.length;
          if (chunks === 1) server.pause();
          if (receivedBytes === 400_000) resolve();
        },
        onEnd: () => undefined,
      });
    });
    client.write([patternBytes(400_000)]).catch(() => undefined);
    await pass(100);
    expect(chunks).toBe(1);
    server.resume();
    await done;
    for (const stream of [client, server]) stream.destroy();
    await listener.close();
  });
}

function endTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "after the other end is destroyed the stream ends once, and writing is ECONNRESET",
    async ({ network, pass }) => {
      const { client, server, listener } = await connectedPair(network);
      const receiver = new Receiver(server);
      await client.write([patternBytes(100)]);
      await receiver.bytesReach(100);
      client.destroy();
      client.destroy();
      await receiver.ended();
      await pass(20);
      expect(receiver.ends).toEqual([undefined]);
      await expectNetworkError(() => server.write([patternBytes(10)]), ["ECONNRESET"], "write");
      server.destroy();
      await listener.close();
    },
  );

  contractTest(
    makeFixture,
    "a destroyed stream calls no handler any more and refuses to write",
    async ({ network, pass }) => {
      const { client, server, listener } = await connectedPair(network);
      const receiver = new Receiver(client);
      await server.write([patternBytes(100)]);
      client.destroy();
      const receivedBytes = receiver.receivedBytes;
      await expectNetworkError(() => client.write([patternBytes(1)]), ["CLOSED"], "write");
      await pass(30);
      expect(receiver.receivedBytes).toBe(receivedBytes);
      expect(receiver.ends).toEqual([]);
      server.destroy();
      await listener.close();
    },
  );

  contractTest(
    makeFixture,
    "a writer that waits for room is told when the other end goes",
    async ({ network, pass }) => {
      const { client, server, listener } = await connectedPair(network);
      server.pause();
      const receiver = new Receiver(client);
      const write = client.write([patternBytes(64 * 1024 * 1024)]);
      const outcome = write.then(
        () => "room",
        (error: unknown) => error,
      );
      await pass(50);
      server.destroy();
      await receiver.ended();
      expect(await outcome).toMatchObject({ name: "NetworkError", code: "ECONNRESET" });
      client.destroy();
      await listener.close();
    },
  );

  contractTest(
    makeFixture,
    "a writer that waits for room is told when its own end is destroyed",
    async ({ network, pass }) => {
      const { client, server, listener } = await connectedPair(network);
      const outcome = client.write([patternBytes(64 * 1024 * 1024)]).then(
        () => "room",
        (error: unknown) => error,
      );
      await pass(50);
      client.destroy();
      expect(await outcome).toMatchObject({ name: "NetworkError", code: "CLOSED" });
      server.destroy();
      await listener.close();
    },
  );

  contractTest(makeFixture, "the end waits for a paused reader", async ({ network, pass }) => {
    const { client, server, listener } = await connectedPair(network);
    const receiver = new Receiver(server);
    server.pause();
    client.destroy();
    await pass(30);
    expect(receiver.ends).toEqual([]);
    server.resume();
    await receiver.ended();
    expect(receiver.ends).toHaveLength(1);
    server.destroy();
    await listener.close();
  });
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let position = 0;
  for (const part of parts) {
    whole.set(part, position);
    position += part.length;
  }
  return whole;
}
