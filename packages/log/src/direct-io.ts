import type { Clock, FileHandle } from "@tidemark/base";
import { readFully, writeFully } from "@tidemark/base";

/** A call of at most this many bytes may hold up the event loop: it costs less than a trip through the thread pool. */
export const DIRECT_BYTES_MAX = 64 * 1024;

/** The same for a read that the page cache is expected to answer. */
export const DIRECT_CACHED_BYTES_MAX = 512 * 1024;

/** A direct call that took longer sends its file to the pool ... */
export const SLOW_CALL_MS = 2;

/** ... for this long. */
export const POOL_HOLD_MS = 1000;

/**
 * Whether a file call of `bytes` is made directly, holding up the event loop.
 * @param limitBytes `DIRECT_BYTES_MAX` or `DIRECT_CACHED_BYTES_MAX`
 *
 * A direct 4 KiB write costs 1-4 us against 30 us through the pool, but one beside another process's dirty pages was seen
 * to take 420 ms. So the last slow call decides: this bounds how often the loop is held up, not for how long.
 */
export function goesDirect(bytes: number, limitBytes: number, poolUntilMs: number, nowMs: number): boolean {
  return bytes <= limitBytes && nowMs >= poolUntilMs;
}

/** Until when a file's calls go through the pool after a direct call of `durationMs` that ended at `nowMs`. */
export function nextPoolUntilMs(poolUntilMs: number, durationMs: number, nowMs: number): number {
  return durationMs > SLOW_CALL_MS ? nowMs + POOL_HOLD_MS : poolUntilMs;
}

/** One file's reads and writes under the event-loop policy above. */
export class DirectIo {
  readonly #clock: Clock;
  #poolUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** As base's `readFully`. */
  async read(
    file: FileHandle,
    target: Uint8Array,
    positionBytes: number,
    limitBytes = DIRECT_BYTES_MAX,
  ): Promise<number> {
    const startMs = this.#clock.monotonicMs();
    if (!goesDirect(target.length, limitBytes, this.#poolUntilMs, startMs))
      return readFully(file, target, positionBytes);
    const count = file.readNow(target, positionBytes);
    this.#observe(startMs);
    // A short count is the end of the file, or a file system's whim: the loop decides which.
    if (count === target.length || count === 0) return count;
    return count + (await readFully(file, target.subarray(count), positionBytes + count));
  }

  /** As base's `writeFully`. */
  async write(file: FileHandle, source: Uint8Array, positionBytes: number): Promise<void> {
    const startMs = this.#clock.monotonicMs();
    if (!goesDirect(source.length, DIRECT_BYTES_MAX, this.#poolUntilMs, startMs))
      return writeFully(file, source, positionBytes);
    const count = file.writeNow(source, positionBytes);
    this.#observe(startMs);
    if (count === source.length) return undefined;
    return writeFully(file, source.subarray(count), positionBytes + count);
  }

  #observe(startMs: number): void {
    const nowMs = this.#clock.monotonicMs();
    this.#poolUntilMs = nextPoolUntilMs(this.#poolUntilMs, nowMs - startMs, nowMs);
  }
}
