import type { Clock, FileHandle } from "@tidemark/base";
import { readFully, writeFully } from "@tidemark/base";

/** A write of at most this many bytes may hold up the event loop: into the page cache it costs less than a trip through the pool. */
export const DIRECT_WRITE_BYTES_MAX = 1024 * 1024;

/** The same for a read of a file that is taken to lie in the page cache ... */
export const DIRECT_READ_BYTES_MAX = 1024 * 1024;

/** ... and of any other. */
export const DIRECT_UNKNOWN_READ_BYTES_MAX = 64 * 1024;

/** What a read of more than `DIRECT_UNKNOWN_READ_BYTES_MAX` brings in a millisecond, if the page cache has it. Disks are slower. */
export const CACHED_BYTES_PER_MS = 1024 * 1024;

/** A direct call that took longer sends its file to the pool ... */
export const SLOW_CALL_MS = 2;

/** ... for this many times as long: so slow calls on a file take at most a tenth of the event loop's time. */
export const POOL_HOLD_FACTOR = 10;

/** When direct calls, on all files, have taken this long in all, one goes through the pool, so that the event loop turns. */
export const DIRECT_MS_IN_A_ROW_MAX = 5;

/** What the event-loop policy knows of a file. */
export interface DirectIoState {
  /** Monotonic; until then all calls go through the pool. */
  poolUntilMs: number;
  /** What direct calls took since one went through the pool; of all files of a process, which have one event loop. */
  directMs: number;
  /** Whether the last large read came as fast as memory does. */
  isCached: boolean;
}

/**
 * The event-loop policy: whether a call of `bytes` is made directly, holding up the event loop.
 *
 * A direct 4 KiB write costs 1-4 us against 30 us through the pool, and one of 1 MiB 0.2 ms; but one beside another process's dirty pages
 * was seen to take 420 ms. So what calls took decides: this bounds the share of time that the loop is held up, not for how long
 * it is once. A caller that does nothing but await such calls never lets the loop turn: a call now and then goes through the pool.
 */
export function goesDirect(operation: "read" | "write", bytes: number, state: DirectIoState, nowMs: number): boolean {
  if (nowMs < state.poolUntilMs || state.directMs >= DIRECT_MS_IN_A_ROW_MAX) return false;
  if (operation === "write") return bytes <= DIRECT_WRITE_BYTES_MAX;
  return bytes <= (state.isCached ? DIRECT_READ_BYTES_MAX : DIRECT_UNKNOWN_READ_BYTES_MAX);
}

/** Draws the consequences of a direct call that took `durationMs` and ended at `nowMs`. */
export function noteDirectCall(state: DirectIoState, durationMs: number, nowMs: number): void {
  state.directMs += durationMs;
  if (durationMs > SLOW_CALL_MS) state.poolUntilMs = nowMs + durationMs * POOL_HOLD_FACTOR;
}

/** Draws the consequences of a read of `bytes`, direct or not: a small one says nothing of how fast the file is. */
export function noteRead(state: DirectIoState, bytes: number, durationMs: number): void {
  if (bytes > DIRECT_UNKNOWN_READ_BYTES_MAX) state.isCached = bytes >= durationMs * CACHED_BYTES_PER_MS;
}

const loops = new WeakMap<Clock, Pick<DirectIoState, "directMs">>();

/** One file's reads and writes under the event-loop policy. */
export class DirectIo {
  readonly #clock: Clock;
  readonly #state: DirectIoState;

  /** @param clock that of the process: what direct calls take is counted together for all files with the same one */
  constructor(clock: Clock) {
    this.#clock = clock;
    const loop = loops.get(clock) ?? { directMs: 0 };
    loops.set(clock, loop);
    this.#state = {
      poolUntilMs: Number.NEGATIVE_INFINITY,
      isCached: false,
      get directMs() {
        return loop.directMs;
      },
      set directMs(directMs) {
        loop.directMs = directMs;
      },
    };
  }

  /**
   * Reads at once where the policy allows it.
   * @returns bytes read, as `FileHandle.readNow`; `undefined` when the call belongs into the pool: `read` makes it there
   * @throws FileError
   */
  readNow(file: FileHandle, target: Uint8Array, positionBytes: number): number | undefined {
    const startMs = this.#clock.monotonicMs();
    if (!goesDirect("read", target.length, this.#state, startMs)) return undefined;
    const count = file.readNow(target, positionBytes);
    this.#noteDirect(startMs, target.length);
    return count;
  }

  /** Writes at once where the policy allows it; as `readNow`. @throws FileError */
  writeNow(file: FileHandle, source: Uint8Array, positionBytes: number): number | undefined {
    const startMs = this.#clock.monotonicMs();
    if (!goesDirect("write", source.length, this.#state, startMs)) return undefined;
    const count = file.writeNow(source, positionBytes);
    this.#noteDirect(startMs, 0);
    return count;
  }

  /** As base's `readFully`. */
  async read(file: FileHandle, target: Uint8Array, positionBytes: number): Promise<number> {
    const count = this.readNow(file, target, positionBytes);
    // A short count is the end of the file, or a file system's whim: the loop decides which.
    if (count !== undefined)
      return count === target.length || count === 0
        ? count
        : count + (await readFully(file, target.subarray(count), positionBytes + count));
    const startMs = this.#clock.monotonicMs();
    const pooledCount = await readFully(file, target, positionBytes);
    this.#loopTurned();
    noteRead(this.#state, pooledCount, this.#clock.monotonicMs() - startMs);
    return pooledCount;
  }

  /** As base's `writeFully`. */
  async write(file: FileHandle, source: Uint8Array, positionBytes: number): Promise<void> {
    const count = this.writeNow(file, source, positionBytes);
    if (count === source.length) return;
    const written = count ?? 0;
    await writeFully(file, source.subarray(written), positionBytes + written);
    this.#loopTurned();
  }

  /** What went through the pool is done, not only begun: other callers would else hold up the loop meanwhile, one after the other. */
  #loopTurned(): void {
    this.#state.directMs = 0;
  }

  #noteDirect(startMs: number, bytesRead: number): void {
    const nowMs = this.#clock.monotonicMs();
    noteDirectCall(this.#state, nowMs - startMs, nowMs);
    noteRead(this.#state, bytesRead, nowMs - startMs);
  }
}
