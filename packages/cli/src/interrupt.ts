import { constants } from "node:os";

import { Interrupted } from "./errors.ts";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Runs a command that can be stopped: the first SIGINT, SIGTERM or SIGHUP aborts the signal with an `Interrupted` as its
 * reason, so that the command can close what it holds; a second one ends the process at once.
 */
export async function interruptible<Result>(run: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
  const controller = new AbortController();
  const listeners = SIGNALS.map((signal) => {
    const exitCode = 128 + constants.signals[signal];
    const listener = () => {
      if (controller.signal.aborted) process.exit(exitCode);
      controller.abort(new Interrupted(signal, exitCode));
    };
    process.on(signal, listener);
    return { signal, listener };
  });
  try {
    return await run(controller.signal);
  } finally {
    for (const { signal, listener } of listeners) process.off(signal, listener);
  }
}
