import { FileError } from "@tidemark/base";
import type { State, StatePut } from "@tidemark/base";
import { copyBytes } from "./bytes.ts";
import type { SimulatedDisk } from "./disk.ts";

/** Path under which faults of a disk address State: writes for every commit, syncs for those that ask for one. */
export const STATE_PATH = "state";

/**
 * State of a machine: its commits are operations of the disk's log, so that one crash point covers both. A commit is one operation,
 * with `sync` it is durable, and all before it, as soon as it happened.
 */
export class SimulatedState implements State {
  readonly #core: SimulatedDisk["core"];
  /** Commits in flight, for their order and for `close`. */
  #tail: Promise<unknown> = Promise.resolve();
  #isOpen = true;

  constructor(disk: SimulatedDisk) {
    this.#core = disk.core;
  }

  get(key: string): Uint8Array | undefined {
    this.#assertOpen("read");
    return this.#core.log.live.state.get(key)?.slice();
  }

  keys(prefix: string): readonly string[] {
    this.#assertOpen("read");
    return [...this.#core.log.live.state.keys()].filter((key) => key.startsWith(prefix)).sort(byCodeUnits);
  }

  commit(puts: readonly StatePut[], options: { readonly sync: boolean }): Promise<void> {
    if (!this.#isOpen) return Promise.reject(new FileError("EBADF", "write", STATE_PATH));
    const copies = puts.map(({ key, value }) => ({ key, value: value === undefined ? undefined : copyBytes(value) }));
    const effect = (): void => {
      this.#core.enter("write", STATE_PATH);
      if (options.sync) this.#core.enter("sync", STATE_PATH);
      this.#core.log.record({ type: "commit", puts: copies, sync: options.sync, path: STATE_PATH });
    };
    const { completion } = this.#core;
    if (completion.isImmediate) return completion.run("state.commit", effect);
    // Commits take effect in the order of the calls, whatever their latencies.
    const committed = this.#tail.then(() => completion.run("state.commit", effect));
    this.#tail = committed.catch(() => undefined);
    return committed;
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    await this.#tail;
  }

  #assertOpen(operation: "read"): void {
    if (!this.#isOpen) throw new FileError("EBADF", operation, STATE_PATH);
    this.#core.assertRunning();
  }
}

function byCodeUnits(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
