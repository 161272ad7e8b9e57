/** Callbacks of the signals that somebody is waiting on. */
const callbacksBySignal = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls once when the signal aborts, unless the returned function was called before. The signal must not be aborted yet.
 *
 * Each signal gets one listener, however many wait on it: a program that passes one signal to thousands of appends would
 * otherwise be warned of a leak on its standard error.
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  let callbacks = callbacksBySignal.get(signal);
  if (callbacks === undefined) {
    const added = new Set<() => void>();
    callbacks = added;
    callbacksBySignal.set(signal, added);
    const callAll = (): void => {
      for (const call of added) call();
      added.clear();
    };
    signal.addEventListener("abort", callAll, { once: true });
  }
  const registered = callbacks;
  // One of its own, since the same callback may wait twice.
  const call = (): void => callback();
  registered.add(call);
  return () => registered.delete(call);
}
