import type { ChildProcess } from "node:child_process";

import type { ReplicaDescription, TruncationReport } from "@tidemark/replica";

import { type Ending, endOf, spawnSelf } from "../child-process.ts";
import { BROKER_COMMAND, type BrokerCommand, type BrokerMessage, type BrokerTask } from "./broker-messages.ts";

export interface BrokerEnding extends Ending {
  /** Told after a clean close; `undefined` after any other end. */
  readonly isClean: boolean | undefined;
  /** What it told before it gave up. */
  readonly failure: string | undefined;
  readonly wasOpen: boolean;
}

export interface BrokerObserver {
  readonly onOpened: () => void;
  readonly onTruncated: (report: TruncationReport) => void;
  readonly onReplicaFailed: (reason: string) => void;
}

interface Waiting {
  readonly resolve: (replicas: readonly ReplicaDescription[] | undefined) => void;
  readonly timer: NodeJS.Timeout;
}

/** One running process of a broker, from its start to its end. */
export class BrokerProcess {
  readonly brokerId: number;
  /** Resolves when the process is gone and all that it told is heard. */
  readonly ended: Promise<BrokerEnding>;
  readonly startedMs = performance.now();
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, Waiting>();
  #nextId = 1;
  #isOpen = false;
  #isClean: boolean | undefined;
  #failure: string | undefined;

  constructor(task: BrokerTask, observer: BrokerObserver) {
    this.brokerId = task.brokerId;
    this.#child = spawnSelf(BROKER_COMMAND, task);
    this.#child.on("message", (message: BrokerMessage) => this.#hear(message, observer));
    this.ended = this.#end();
  }

  /** Its log is open, its port is listened at. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Has a command carried out. One that is not answered in time may still be carried out later, before the next ones.
   * @returns its replicas after it; `undefined` when no answer came, because the process is gone, stopped or busy
   */
  request(command: BrokerCommand, timeoutMs: number): Promise<readonly ReplicaDescription[] | undefined> {
    const id = this.#nextId;
    this.#nextId += 1;
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#answer(id, undefined), timeoutMs);
      this.#waiting.set(id, { resolve, timer });
      if (!this.#send(id, command)) this.#answer(id, undefined);
    });
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  #send(id: number, command: BrokerCommand): boolean {
    if (!this.#child.connected) return false;
    this.#child.send({ id, command }, (error) => {
      if (error !== null) this.#answer(id, undefined);
    });
    return true;
  }

  #hear(message: BrokerMessage, observer: BrokerObserver): void {
    switch (message.type) {
      case "opened":
        this.#isOpen = true;
        observer.onOpened();
        break;
      case "answer":
        this.#answer(message.id, message.replicas);
        break;
      case "truncated":
        observer.onTruncated(message.report);
        break;
      case "replicaFailed":
        observer.onReplicaFailed(message.reason);
        break;
      case "closed":
        this.#isClean = message.isClean;
        break;
      case "failed":
        this.#failure = message.line;
        break;
      default:
        message satisfies never;
    }
  }

  #answer(id: number, replicas: readonly ReplicaDescription[] | undefined): void {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    this.#waiting.delete(id);
    clearTimeout(waiting.timer);
    waiting.resolve(replicas);
  }

  async #end(): Promise<BrokerEnding> {
    const ending = await endOf(this.#child);
    const wasOpen = this.#isOpen;
    this.#isOpen = false;
    for (const id of this.#waiting.keys()) this.#answer(id, undefined);
    return { ...ending, isClean: this.#isClean, failure: this.#failure, wasOpen };
  }
}
