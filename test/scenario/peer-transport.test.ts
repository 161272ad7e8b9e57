import { spawn } from "node:child_process";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { PeerServer, StreamPeerTransport } from "@tidemark/replica";
import { SystemClock, TcpNetwork } from "@tidemark/runtime-node";
import { encodeFrame } from "@tidemark/wire";
import type { FetchRequest, PeerAddress, PeerHandler, PeerResponse } from "@tidemark/wire";
import { expect, test } from "vitest";

const TIMEOUT = { timeoutMs: 30_000 };

function fetchOf(partition: number, maxBytes: number): FetchRequest {
  const offsets = {
    currentLeaderEpoch: 0,
    fetchOffset: 0,
    flushedEndOffset: 0,
    lastFetchedEpoch: 0,
    logStartOffset: 0,
  };
  const partitions = [{ topic: "t", partition, ...offsets, maxBytes }];
  return { kind: "fetch", replicaId: 2, brokerEpoch: 1, maxWaitMs: 0, minBytes: 0, maxBytes, partitions };
}

function bytesOf(partition: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => (index * 31 + partition) ^ (index >> 8));
}

const leader: PeerHandler = (request) => {
  if (request.kind !== "fetch") return Promise.resolve({ kind: "describe", error: "INVALID_REQUEST", json: "" });
  const offsets = { highWatermark: 0, logStartOffset: 0, logEndOffset: 0, divergingEpoch: -1, divergingEndOffset: -1 };
  const partitions = request.partitions.map(({ topic, partition, maxBytes }) => ({
    topic,
    partition,
    error: "NONE" as const,
    ...offsets,
    bytes: bytesOf(partition, maxBytes),
  }));
  return Promise.resolve({ kind: "fetch", partitions });
};

async function codeOf(promise: Promise<PeerResponse>): Promise<string> {
  return promise.then(
    ({ kind }) => kind,
    (error: { code?: string }) => error.code ?? "no code",
  );
}

function transportOverTcp(): { readonly transport: StreamPeerTransport; readonly network: TcpNetwork } {
  const network = new TcpNetwork();
  return { network, transport: new StreamPeerTransport({ network, clock: new SystemClock() }) };
}

test("over TCP: many fetches in flight on one connection, each batch as it was", async () => {
  const { network, transport } = transportOverTcp();
  await using server = await PeerServer.listen({ network, port: 0, handler: leader });
  const address: PeerAddress = { nodeId: 1, host: server.host, port: server.port };
  const sizes = [0, 1, 1_000, 65_536, 131_072, 1_500_000];
  const answers = await Promise.all(
    Array.from({ length: 60 }, (_, n) => transport.request(address, fetchOf(n, sizes[n % sizes.length] ?? 0), TIMEOUT)),
  );
  for (const [n, answer] of answers.entries()) {
    const bytes = answer.partitions[0]?.bytes ?? new Uint8Array(0);
    const expected = bytesOf(n, sizes[n % sizes.length] ?? 0);
    expect(bytes.length).toBe(expected.length);
    expect(bytes.findIndex((byte, index) => byte !== expected[index])).toBe(-1);
  }
  expect(server.connectionCount).toBe(1);
  await transport.close();
});

test("over TCP: a peer killed with its answers half sent, and its successor on the same port", async () => {
  // A process of its own, so that SIGKILL leaves a connection in the middle of a frame: 100,000 bytes announced, 40 sent.
  const message = await leader(fetchOf(0, 100_000), { remote: "" });
  const frame = encodeFrame({ type: "response", correlationId: 0, message });
  const start = Buffer.concat(frame).subarray(0, 40).toString("hex");
  const program = `
    const server = require("node:net").createServer((socket) => socket.once("data", () => {
      socket.write(Buffer.from("${start}", "hex"), () => console.log("half sent"));
    }));
    server.listen(0, "127.0.0.1", () => console.log(server.address().port));`;
  const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  const line = (): Promise<string> =>
    new Promise((resolve) => void child.stdout.once("data", (text) => resolve(String(text))));
  const { network, transport } = transportOverTcp();
  const address: PeerAddress = { nodeId: 1, host: "127.0.0.1", port: Number(await line()) };
  const halfSent = line().then(() => child.kill("SIGKILL"));
  const exited = new Promise<void>((resolve) => void child.once("exit", () => resolve()));
  expect(await codeOf(transport.request(address, fetchOf(0, 10), TIMEOUT))).toBe("DISCONNECTED");
  await Promise.all([halfSent, exited]);
  expect(await codeOf(transport.request(address, fetchOf(0, 10), TIMEOUT))).toBe("UNREACHABLE");
  await using server = await PeerServer.listen({ network, port: address.port, handler: leader });
  expect(await codeOf(transport.request(address, fetchOf(1, 10), TIMEOUT))).toBe("fetch");
  expect(server.connectionCount).toBe(1);
  await transport.close();
});

test("over TCP: a silent peer is TIMED_OUT, one that talks something else PROTOCOL", async () => {
  const { transport } = transportOverTcp();
  const silent = createServer(() => undefined);
  const other = createServer((socket) => socket.on("error", () => undefined).end("HTTP/1.1 400 Bad Request\r\n\r\n"));
  const portOf = (server: typeof silent): Promise<number> =>
    new Promise((resolve) => void server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port)));
  const [silentPort, otherPort] = [await portOf(silent), await portOf(other)];
  const ask = (port: number, timeoutMs: number): Promise<string> =>
    codeOf(transport.request({ nodeId: 1, host: "127.0.0.1", port }, fetchOf(0, 1), { timeoutMs }));
  expect(await ask(silentPort, 100)).toBe("TIMED_OUT");
  expect(await ask(otherPort, 30_000)).toBe("PROTOCOL");
  await transport.close();
  for (const server of [silent, other]) server.close();
});
