import type { BufferMemory } from "./buffer-memory.ts";
import { toTidemarkError } from "./error.ts";
import type { Part } from "./partition-accumulator.ts";

/** Where a record is. */
export interface AppendedRecord {
  readonly partition: number;
  readonly offset: number;
  /** Unix time in ms, as a fetch shows it. */
  readonly timestamp: number;
}

export interface AppendCallOptions {
  readonly memory: BufferMemory;
  /** Of `memory`; given back when the call is over. */
  readonly bytes: number;
  /** Told that the call is over. */
  readonly end: () => void;
  readonly topic: string;
  readonly partition: number;
  readonly timestamp: number;
}

/**
 * The append of one record, from its encoding to its answer.
 *
 * All that such a call keeps: closures would keep the scopes that made them, with the record, and what survives until the
 * answer is what a stream of small appends costs.
 */
export class AppendCall implements Part {
  readonly count = 1;
  readonly #memory: BufferMemory;
  readonly #bytes: number;
  readonly #end: () => void;
  readonly #topic: string;
  readonly #partition: number;
  readonly #timestamp: number;
  #resolve: (result: AppendedRecord) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;

  constructor({ memory, bytes, end, topic, partition, timestamp }: AppendCallOptions) {
    this.#memory = memory;
    this.#bytes = bytes;
    this.#end = end;
    this.#topic = topic;
    this.#partition = partition;
    this.#timestamp = timestamp;
  }

  /** The answer. Asked for once. */
  answer(): Promise<AppendedRecord> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  onAppended(offset: number, logAppendTime?: number): void {
    this.#over();
    this.#resolve({ partition: this.#partition, offset, timestamp: logAppendTime ?? this.#timestamp });
  }

  onFailed(error: unknown): void {
    this.#over();
    this.#reject(toTidemarkError(error, { topic: this.#topic, partition: this.#partition }));
  }

  #over(): void {
    this.#memory.release(this.#bytes);
    this.#end();
  }
}
