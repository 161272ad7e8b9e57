import type { Clock } from "@tidemark/base";
import type { Kernel } from "@tidemark/simulator";
import { SimulatedRandom } from "@tidemark/simulator";
import { PeerError } from "@tidemark/wire";
import type { PeerAddress, PeerRequest, PeerResponse, PeerTransport, ResponseTo } from "@tidemark/wire";

type Handler = (request: PeerRequest) => Promise<PeerResponse>;

/** Messages between nodes, late and lost as told. */
export class MiniNetwork {
  readonly #kernel: Kernel;
  readonly #random: SimulatedRandom;
  readonly #handlers = new Map<number, Handler>();
  readonly #cut = new Set<string>();
  maxDelayUs = 2000;
  lossOneIn = 0;

  constructor(kernel: Kernel, seed: number) {
    this.#kernel = kernel;
    this.#random = new SimulatedRandom(seed);
  }

  attach(nodeId: number, handler: Handler): void {
    this.#handlers.set(nodeId, handler);
  }

  detach(nodeId: number): void {
    this.#handlers.delete(nodeId);
  }

  /** Nothing passes from one to the other. */
  cut(from: number, to: number): void {
    this.#cut.add(`${from}>${to}`);
  }

  isolate(nodeId: number, others: readonly number[]): void {
    for (const other of others) {
      this.cut(nodeId, other);
      this.cut(other, nodeId);
    }
  }

  heal(): void {
    this.#cut.clear();
  }

  transport(nodeId: number, clock: Clock): PeerTransport {
    return {
      request: <Request extends PeerRequest>(
        address: PeerAddress,
        request: Request,
        options: { timeoutMs: number },
      ): Promise<ResponseTo<Request>> => this.#request(nodeId, clock, address, request, options.timeoutMs),
      close: async () => undefined,
    };
  }

  #request<Request extends PeerRequest>(
    from: number,
    clock: Clock,
    address: PeerAddress,
    request: Request,
    timeoutMs: number,
  ): Promise<ResponseTo<Request>> {
    const to = address.nodeId;
    return new Promise((resolve, reject) => {
      const timer = clock.setTimer(timeoutMs, () => reject(new PeerError("TIMED_OUT", `${request.kind} to ${to}`)));
      this.#deliver(from, to, () => {
        const handler = this.#handlers.get(to);
        if (handler === undefined) return;
        void handler(request).then((response) => {
          // A process that died meanwhile answers nothing.
          if (this.#handlers.get(to) !== handler) return;
          this.#deliver(to, from, () => {
            timer.cancel();
            resolve(response as ResponseTo<Request>);
          });
        });
      });
    });
  }

  #deliver(from: number, to: number, arrive: () => void): void {
    if (this.#cut.has(`${from}>${to}`)) return;
    if (this.lossOneIn > 0 && this.#random.below("network.loss", this.lossOneIn) === 0) return;
    this.#kernel.schedule(50 + this.#random.below("network.delay", this.maxDelayUs), `message ${from}>${to}`, arrive);
  }
}
