import { mkdtempSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
/** Someone may still be writing into a directory that is removed on a signal. */
const REMOVE_OPTIONS = { recursive: true, force: true, maxRetries: 3 } as const;

/** Directories that are gone when the process ends, however it ends, unless it is killed. */
export class TemporaryDirectories {
  /** All directories lie in here. */
  readonly root: string;
  readonly #onExit = () => rmSync(this.root, REMOVE_OPTIONS);
  readonly #onSignal = (signal: NodeJS.Signals) => process.exit(128 + constants.signals[signal]); // Runs `#onExit`.

  /** In the system's temporary directory; `TMPDIR` in the environment chooses another, and with it the disk. */
  constructor() {
    this.root = mkdtempSync(join(tmpdir(), "tidemark-bench-"));
    process.on("exit", this.#onExit);
    for (const signal of SIGNALS) process.on(signal, this.#onSignal);
  }

  /** An empty directory. */
  create(): string {
    return mkdtempSync(join(this.root, "run-"));
  }

  remove(directory: string): void {
    rmSync(directory, REMOVE_OPTIONS);
  }

  [Symbol.dispose](): void {
    for (const signal of SIGNALS) process.off(signal, this.#onSignal);
    process.off("exit", this.#onExit);
    rmSync(this.root, REMOVE_OPTIONS);
  }
}
