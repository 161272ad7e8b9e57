/** Depth of the promise chain that the self-test drains: deeper than any chain in the engine. */
const SELF_TEST_DEPTH = 1_000;

/** Node's own loop over next-ticks and microtasks. Internal, hence the self-test below and the barrier in the kernel. */
const tickCallback = (process as unknown as { readonly _tickCallback?: () => void })._tickCallback;

let verdict: boolean | undefined;

/**
 * Runs every microtask and next-tick that is runnable, and those that they make runnable, before it returns.
 *
 * Only from plain synchronous code that a macrotask started: inside a promise job Node's loop does nothing.
 */
export function drainMicrotasks(): void {
  tickCallback?.call(process);
}

/**
 * Whether `drainMicrotasks` drains a chain of 1,000 promises here. Asked once, from a macrotask; where it does not, the kernel lets
 * the event loop turn after every event, which is correct and several times slower.
 */
export function canDrainMicrotasks(): boolean {
  verdict ??= selfTest();
  return verdict;
}

function selfTest(): boolean {
  if (tickCallback === undefined) return false;
  let depth = 0;
  const settled = Promise.resolve();
  const descend = async (): Promise<void> => {
    for (let index = 0; index < SELF_TEST_DEPTH; index++) {
      await settled;
      depth++;
    }
  };
  void descend();
  drainMicrotasks();
  return depth === SELF_TEST_DEPTH;
}
