import type { ByteStream, Network, NetworkAddress, NetworkListener, Timer } from "@tidemark/base";
import { fail, NetworkError } from "@tidemark/base";
import type { LatencyRange } from "./completion.ts";
import type { Kernel } from "./kernel.ts";
import { SimulatedStream } from "./network-stream.ts";
import type { StreamWorld } from "./network-stream.ts";
import type { SimulatedRandom } from "./random.ts";

const LATENCY_DEFAULT: LatencyRange = { minUs: 50, maxUs: 1_000 };
const CHUNK_BYTES_MAX_DEFAULT = 64 * 1024;
const WINDOW_BYTES_DEFAULT = 256 * 1024;
/** Between two chunks of one stream that travel together. */
const NEXT_CHUNK_US_MAX = 20;
/** An attempt to connect over a cut link is repeated, as TCP does. */
const CONNECT_RETRY_US = 1_000_000;
const LOOPBACK = "127.0.0.1";
const EPHEMERAL_PORT_MIN = 32_768;

export interface SimulatedNetworkOptions {
  readonly kernel: Kernel;
  readonly random: SimulatedRandom;
  /** Of a chunk on an idle way. Default 50 µs to 1 ms. */
  readonly latency?: LatencyRange;
  /** Chunks are cut to 1 .. this many bytes, by the seed. Default 64 KiB. */
  readonly chunkBytesMax?: number;
  /** Bytes under way in one direction before a writer has to wait. Default 256 KiB. */
  readonly windowBytes?: number;
}

/**
 * Hosts and the streams between them, over the kernel's time. Faults are ordered by name: `cut`, `partition`, `heal`, `reset`; a slow reader
 * is one that pauses; a process or a machine dies through its `SimulatedHost`.
 */
export class SimulatedNetwork {
  readonly #kernel: Kernel;
  readonly #random: SimulatedRandom;
  readonly #hosts = new Map<string, SimulatedHost>();
  readonly #streams = new Set<SimulatedStream>();
  readonly #cuts = new Set<string>();
  readonly #latency: LatencyRange;
  readonly #chunkBytesMax: number;
  readonly #world: StreamWorld;

  constructor(options: SimulatedNetworkOptions) {
    this.#kernel = options.kernel;
    this.#random = options.random;
    this.#latency = options.latency ?? LATENCY_DEFAULT;
    this.#chunkBytesMax = options.chunkBytesMax ?? CHUNK_BYTES_MAX_DEFAULT;
    this.#world = {
      windowBytes: options.windowBytes ?? WINDOW_BYTES_DEFAULT,
      schedule: (from, to, isNext, fire) => this.#schedule(from, to, isNext, fire),
      drawChunkBytes: (from, to, waitingBytes) =>
        1 + this.#random.below(`network.chunk/${from}>${to}`, Math.min(waitingBytes, this.#chunkBytesMax)),
      draw: (site, bound) => this.#random.below(site, bound),
      isCut: (from, to) => this.#cuts.has(linkName(from, to)),
      answerForDead: (host) => (this.#hosts.get(host)?.hasMachine === true ? "reset" : "silence"),
      forget: (stream) => void this.#streams.delete(stream),
    };
  }

  /** The network as a new process on the host sees it. The process before must have crashed. */
  host(name: string): SimulatedHost {
    if (this.#hosts.get(name)?.isAlive === true) fail("one process at a time on a simulated host", { name });
    const host: SimulatedHost = new SimulatedHost(name, {
      connect: (address, timeoutMs) => this.#connect(host, address, timeoutMs),
      streams: () => [...this.#streams].filter((stream) => stream.local === name),
      forget: (stream) => void this.#streams.delete(stream),
    });
    this.#hosts.set(name, host);
    // What was sent to the machine while it was down is sent again, and meets a kernel that knows nothing of the connection.
    for (const stream of this.#streams) if (stream.remoteHost === name) stream.wake();
    return host;
  }

  /** Nothing goes from one host to the other; bytes wait, as under TCP, until the link is whole again. */
  cut(from: string, to: string): void {
    this.#cuts.add(linkName(from, to));
  }

  /** Cuts both ways. */
  partition(first: string, second: string): void {
    this.cut(first, second);
    this.cut(second, first);
  }

  /** Ends all cuts. */
  heal(): void {
    this.#cuts.clear();
    for (const stream of this.#streams) stream.wake();
  }

  /** Breaks every connection between the two, at both ends; what was under way is lost. */
  reset(first: string, second: string): void {
    for (const stream of this.#streams) {
      const ends = [stream.local, stream.remoteHost];
      if (ends.includes(first) && ends.includes(second)) stream.reset();
    }
  }

  #schedule(from: string, to: string, isNext: boolean, fire: () => void): Timer {
    const { minUs, maxUs } = isNext ? { minUs: 0, maxUs: NEXT_CHUNK_US_MAX } : this.#latency;
    const delayUs = minUs + this.#random.below(`network.latency/${from}>${to}`, maxUs - minUs + 1);
    return this.#kernel.schedule(delayUs, "network.deliver", fire);
  }

  #connect(host: SimulatedHost, address: NetworkAddress, timeoutMs: number): Promise<ByteStream> {
    const from = host.name;
    const to = isLoopback(address.host) ? from : address.host;
    const remote = `${address.host}:${address.port}`;
    return new Promise((resolve, reject) => {
      let attempt: Timer | undefined;
      let outcome: Knock = "silence";
      const timeout = this.#kernel.schedule(timeoutMs * 1_000, "network.connect-timeout", () => {
        attempt?.cancel();
        if (!host.isAlive) return;
        if (outcome instanceof SimulatedStream) outcome.destroy();
        reject(new NetworkError("ETIMEDOUT", "connect", remote));
      });
      const knock = (): void => {
        if (!host.isAlive) return;
        outcome = this.#knock(from, to, address);
        if (outcome === "silence") {
          attempt = this.#kernel.schedule(CONNECT_RETRY_US, "network.connect-again", knock);
          return;
        }
        // The answer travels too: the caller learns of it later, within the same time-out.
        attempt = this.#schedule(to, from, false, () => {
          timeout.cancel();
          if (!host.isAlive) return;
          if (outcome instanceof SimulatedStream) resolve(outcome);
          else reject(new NetworkError(outcome === "silence" ? "ETIMEDOUT" : outcome, "connect", remote));
        });
      };
      attempt = this.#schedule(from, to, false, knock);
    });
  }

  #knock(from: string, to: string, address: NetworkAddress): Knock {
    const target = this.#hosts.get(to);
    if (target === undefined) return "EHOSTUNREACH";
    if (this.#cuts.has(linkName(from, to)) || this.#cuts.has(linkName(to, from)) || !target.hasMachine)
      return "silence";
    const accept = target.acceptor(address.port, from === to);
    if (accept === undefined) return "ECONNREFUSED";
    const world = this.#world;
    const remote = `${address.host}:${address.port}`;
    const client = new SimulatedStream(world, { local: from, remoteHost: to, remote });
    const server = new SimulatedStream(world, { local: to, remoteHost: from, remote: `${from}:0` });
    SimulatedStream.connect(client, server);
    this.#streams.add(client).add(server);
    accept(server);
    return client;
  }
}

/** What an attempt to connect meets. */
type Knock = SimulatedStream | "silence" | "ECONNREFUSED" | "EHOSTUNREACH";

interface HostWorld {
  connect(address: NetworkAddress, timeoutMs: number): Promise<ByteStream>;
  /** The open ones of this host. */
  streams(): readonly SimulatedStream[];
  forget(stream: SimulatedStream): void;
}

interface Listening {
  readonly isLoopback: boolean;
  readonly onStream: (stream: ByteStream) => void;
}

/** The network of one process on one host. Other hosts reach what it listens to unless that is the loopback address, the default. */
export class SimulatedHost implements Network {
  readonly name: string;
  readonly #world: HostWorld;
  readonly #listening = new Map<number, Listening>();
  #state: "alive" | "process dead" | "machine dead" = "alive";
  #portNext = EPHEMERAL_PORT_MIN;

  constructor(name: string, world: HostWorld) {
    this.name = name;
    this.#world = world;
  }

  get isAlive(): boolean {
    return this.#state === "alive";
  }

  get hasMachine(): boolean {
    return this.#state !== "machine dead";
  }

  /** What takes a connection to the port, if anybody does. */
  acceptor(port: number, isLocal: boolean): ((stream: ByteStream) => void) | undefined {
    const listening = this.#listening.get(port);
    return listening === undefined || (listening.isLoopback && !isLocal) ? undefined : listening.onStream;
  }

  listen(
    address: { readonly host?: string; readonly port: number },
    onStream: (stream: ByteStream) => void,
  ): Promise<NetworkListener> {
    const host = address.host ?? LOOPBACK;
    const shown = `${host}:${address.port}`;
    if (!isLoopback(host) && host !== this.name && host !== "0.0.0.0") {
      return Promise.reject(new NetworkError("EADDRNOTAVAIL", "listen", shown));
    }
    if (this.#listening.has(address.port)) return Promise.reject(new NetworkError("EADDRINUSE", "listen", shown));
    const port = address.port === 0 ? this.#freePort() : address.port;
    const listening: Listening = { isLoopback: isLoopback(host), onStream };
    this.#listening.set(port, listening);
    return Promise.resolve({
      host,
      port,
      close: () => {
        if (this.#listening.get(port) === listening) this.#listening.delete(port);
        return Promise.resolve();
      },
    });
  }

  connect(address: NetworkAddress, options: { readonly timeoutMs: number }): Promise<ByteStream> {
    return this.#world.connect(address, options.timeoutMs);
  }

  /** The process dies: its kernel closes its connections, and others see them end. */
  crashProcess(): void {
    this.#die("process dead");
  }

  /** The machine dies: connections to it stay half-open and silent until somebody new answers for it. */
  crashMachine(): void {
    this.#die("machine dead");
  }

  #die(state: "process dead" | "machine dead"): void {
    this.#state = state;
    this.#listening.clear();
    for (const stream of this.#world.streams()) {
      if (state === "process dead") stream.dieWithProcess();
      else stream.dieWithMachine();
      this.#world.forget(stream);
    }
  }

  #freePort(): number {
    while (this.#listening.has(this.#portNext)) this.#portNext++;
    return this.#portNext++;
  }
}

function isLoopback(host: string): boolean {
  return host === LOOPBACK || host === "localhost";
}

function linkName(from: string, to: string): string {
  return `${from}>${to}`;
}
