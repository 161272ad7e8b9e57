import type { ByteStream } from "@tidemark/base";
import { describe, expect, test } from "vitest";
import { Kernel } from "./kernel.ts";
import { SimulatedNetwork } from "./network.ts";
import type { SimulatedHost } from "./network.ts";
import { SimulatedRandom } from "./random.ts";

const PORT = 9_000;

interface World {
  readonly kernel: Kernel;
  readonly network: SimulatedNetwork;
  readonly a: SimulatedHost;
  readonly b: SimulatedHost;
  pass(ms: number): Promise<void>;
}

function makeWorld(seed = 2): World {
  const kernel = new Kernel({ seed });
  const network = new SimulatedNetwork({
    kernel,
    random: new SimulatedRandom(seed),
    chunkBytesMax: 100,
    windowBytes: 1_000,
  });
  const pass = (ms: number): Promise<void> =>
    new Promise((resolve) => void kernel.schedule(ms * 1_000, "test.pass", resolve));
  return { kernel, network, a: network.host("a"), b: network.host("b"), pass };
}

/** A stream from a to b, with what b has received and how each end was told of the end. */
async function connect({
  a,
  b,
}: World): Promise<{ stream: ByteStream; received: number[]; endsAtA: string[]; endsAtB: string[] }> {
  const received: number[] = [];
  const endsAtA: string[] = [];
  const endsAtB: string[] = [];
  await b.listen({ host: "b", port: PORT }, (stream) =>
    stream.start({
      onData: (chunk) => void received.push(...chunk),
      onEnd: (error) => void endsAtB.push(error?.code ?? "closed"),
    }),
  );
  const stream = await a.connect({ host: "b", port: PORT }, { timeoutMs: 1_000 });
  stream.start({ onData: () => undefined, onEnd: (error) => void endsAtA.push(error?.code ?? "closed") });
  return { stream, received, endsAtA, endsAtB };
}

async function connectCode(host: SimulatedHost, to: string, timeoutMs = 1_500): Promise<string> {
  return host.connect({ host: to, port: PORT }, { timeoutMs }).then(
    () => "connected",
    (error: { code?: string }) => error.code ?? "no code",
  );
}

describe("faults of simulated streams", () => {
  test("a cut link holds bytes back and loses none; a new connection is ETIMEDOUT meanwhile", async () => {
    const world = makeWorld();
    await world.kernel.run(async () => {
      const { stream, received } = await connect(world);
      world.network.cut("a", "b");
      await stream.write([Uint8Array.of(1, 2, 3)]);
      expect(await connectCode(world.a, "b")).toBe("ETIMEDOUT");
      expect(received).toEqual([]);
      world.network.heal();
      await world.pass(10);
      expect(received).toEqual([1, 2, 3]);
    });
  });

  test("a cut of one way lets the other way through", async () => {
    const world = makeWorld();
    await world.kernel.run(async () => {
      const { stream, received } = await connect(world);
      world.network.cut("b", "a");
      await stream.write([Uint8Array.of(7)]);
      await world.pass(10);
      expect(received).toEqual([7]);
    });
  });

  test("a reset ends both sides with ECONNRESET and fails the writer that waits", async () => {
    const world = makeWorld();
    await world.kernel.run(async () => {
      const { stream, endsAtA, endsAtB } = await connect(world);
      world.network.cut("a", "b");
      const write = stream.write([new Uint8Array(5_000)]).then(
        () => "room",
        (error: { code?: string }) => error.code,
      );
      world.network.reset("b", "a");
      expect(await write).toBe("ECONNRESET");
      await world.pass(10);
      expect([endsAtA, endsAtB]).toEqual([["ECONNRESET"], ["ECONNRESET"]]);
    });
  });

  test("a dead process closes its streams after some front of what it had written, in any place", async () => {
    const counts = new Set<number>();
    for (let seed = 0; seed < 40; seed++) {
      const world = makeWorld(seed);
      await world.kernel.run(async () => {
        const { stream, received, endsAtA, endsAtB } = await connect(world);
        const bytes = Uint8Array.from({ length: 900 }, (_, index) => index);
        await stream.write([bytes]);
        world.a.crashProcess();
        await world.pass(50);
        expect([endsAtA, endsAtB]).toEqual([[], ["closed"]]);
        expect(received).toEqual([...bytes.subarray(0, received.length)]);
        counts.add(received.length);
      });
    }
    expect(counts.size).toBeGreaterThan(20);
  });

  test("a dead machine leaves the stream half-open: silence until another process there answers with a reset", async () => {
    const world = makeWorld();
    await world.kernel.run(async () => {
      const { stream, endsAtA } = await connect(world);
      world.b.crashMachine();
      await stream.write([Uint8Array.of(1)]);
      await world.pass(60_000);
      expect(endsAtA).toEqual([]);
      expect(await connectCode(world.a, "b")).toBe("ETIMEDOUT");
      world.network.host("b");
      await world.pass(10);
      expect(endsAtA).toEqual(["ECONNRESET"]);
      expect(await connectCode(world.a, "b")).toBe("ECONNREFUSED");
    });
  });

  test("promises of a dead process stay open for ever", async () => {
    const world = makeWorld();
    await world.kernel.run(async () => {
      const { stream } = await connect(world);
      const settled: string[] = [];
      const note = (name: string) => (): void => void settled.push(name);
      stream.write([new Uint8Array(5_000)]).then(note("write"), note("write"));
      world.a.connect({ host: "b", port: PORT }, { timeoutMs: 100 }).then(note("connect"), note("connect"));
      world.a.crashProcess();
      stream.write([Uint8Array.of(1)]).then(note("late write"), note("late write"));
      await world.pass(1_000);
      expect(settled).toEqual([]);
    });
  });

  test("what listens on loopback is not reached from other hosts, an unknown host not at all", async () => {
    const world = makeWorld();
    await world.kernel.run(async () => {
      await world.b.listen({ port: PORT }, () => undefined);
      expect(await connectCode(world.a, "b")).toBe("ECONNREFUSED");
      expect(await connectCode(world.b, "127.0.0.1")).toBe("connected");
      expect(await connectCode(world.a, "nowhere")).toBe("EHOSTUNREACH");
    });
  });

  test("one seed run twice cuts the same chunks at the same times, another seed others", async () => {
    const run = async (seed: number): Promise<string> => {
      const world = makeWorld(seed);
      const chunks: string[] = [];
      await world.kernel.run(async () => {
        await world.b.listen({ host: "b", port: PORT }, (stream) =>
          stream.start({
            onData: (chunk) => void chunks.push(`${world.kernel.nowUs}:${chunk.length}`),
            onEnd: () => undefined,
          }),
        );
        const stream = await world.a.connect({ host: "b", port: PORT }, { timeoutMs: 1_000 });
        for (let n = 0; n < 10; n++) await stream.write([new Uint8Array(700)]);
        await world.pass(100);
      });
      return chunks.join(" ");
    };
    expect(await run(4)).toBe(await run(4));
    expect(await run(4)).not.toBe(await run(6));
  });
});
