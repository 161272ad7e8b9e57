import { spawn, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";

/** How much of a process's standard error is kept, to say something when it dies. */
const KEPT_STDERR_BYTES = 4096;

/** How a process ended. */
export interface Ending {
  /** `exit code 1`, `signal SIGKILL`. */
  readonly how: string;
  /** The line of its standard error that says most; empty if there is none. */
  readonly said: string;
}

/** Starts this program again for one of its hidden commands, with a channel for messages. */
export function spawnSelf(command: string, task: unknown): ChildProcess {
  // The same program by its real path (a link in node_modules/.bin would do too, but not on every system).
  const main = new URL(import.meta.url.endsWith(".ts") ? "../main.ts" : "../main.js", import.meta.url);
  const args = [...process.execArgv, fileURLToPath(main), command, JSON.stringify(task)];
  return spawn(process.execPath, args, { stdio: ["ignore", "ignore", "pipe", "ipc"] });
}

/**
 * Waits until the process is gone and nothing is left to read from it: all that it had told has been heard then.
 * @throws errors of node:child_process when it could not be started
 */
export function endOf(child: ChildProcess): Promise<Ending> {
  const said = keepTail(child);
  return new Promise((resolve, reject) => {
    let how: string | undefined;
    let isDisconnected = false;
    const settle = () => {
      if (how !== undefined && isDisconnected) resolve({ how, said: said() });
    };
    child.on("error", reject);
    child.on("disconnect", () => {
      isDisconnected = true;
      settle();
    });
    child.on("close", (code, signal) => {
      how = signal === null ? `exit code ${code}` : `signal ${signal}`;
      settle();
    });
  });
}

function keepTail(child: ChildProcess): () => string {
  let tail = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    if (process.env["TIDEMARK_DEBUG"] === "1") process.stderr.write(text);
    tail = (tail + text).slice(-KEPT_STDERR_BYTES);
  });
  return () => {
    const lines = tail.split("\n").map((line) => line.trim());
    return lines.find((line) => /^(Uncaught )?\w*Error\b/u.test(line)) ?? lines.findLast((line) => line !== "") ?? "";
  };
}

/**
 * Runs a hidden command in such a process. It lives no longer than its parent, and leaves signals of the terminal to it.
 * @param tellFailure called with what `run` threw
 * @returns what `run` returned, or the exit code of a failure
 */
export async function asChild(
  run: () => Promise<number>,
  tellFailure: (error: unknown) => Promise<void>,
  exitCode: number,
): Promise<number> {
  const onDisconnect = () => process.exit(exitCode); // The parent is gone, however it went.
  process.on("disconnect", onDisconnect);
  if (!process.connected) onDisconnect(); // It went while this program was being loaded.
  // A Ctrl-C on the terminal reaches this process too. The parent decides what becomes of it.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
  let result: number;
  try {
    result = await run();
  } catch (error) {
    if (process.env["TIDEMARK_DEBUG"] === "1") process.stderr.write(`${(error as Error).stack}\n`);
    await tellFailure(error);
    process.exit(exitCode); // What is open stays open, as after a kill.
  }
  process.off("disconnect", onDisconnect);
  process.disconnect(); // An open channel would keep the process alive.
  return result;
}

/** Resolves once the message is on its way; the parent reads it even if this process is killed right after. */
export function tellParent(message: object): Promise<void> {
  return new Promise((resolve, reject) => {
    if (process.send === undefined) {
      reject(new Error("started without a parent"));
      return;
    }
    process.send(message, undefined, {}, (error) => (error === null ? resolve() : reject(error)));
  });
}
