import { spawn, type ChildProcess } from "node:child_process";
import { chmod, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** What `npm start` runs; `build.ts` brings it up to date before the first test. */
const MAIN = join(ROOT, "packages/cli/dist/main.js");

export interface CommandResult {
  /** `null` when a signal ended it. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

export interface CommandOptions {
  readonly stdin?: string | Uint8Array | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Modules to load first, in the command and in the processes that it starts: to make them misbehave. */
  readonly imports?: readonly string[] | undefined;
  /** Run as this user; needs to be root. */
  readonly uid?: number | undefined;
  /** Lead a process group of its own, which a test can then signal as a terminal does. */
  readonly ownGroup?: boolean | undefined;
  /** Descriptor to use as standard output. */
  readonly stdout?: number | undefined;
  /** Leave standard input open. */
  readonly keepStdin?: boolean | undefined;
}

export interface RunningCommand {
  readonly child: ChildProcess;
  readonly done: Promise<CommandResult>;
  /** Resolves once standard output holds a match; rejects if the command ends before. */
  waitFor(pattern: RegExp): Promise<string>;
}

/** Starts the `tidemark` command. */
export function startCommand(args: readonly string[], options: CommandOptions = {}): RunningCommand {
  const imports = (options.imports ?? []).flatMap((path) => ["--import", path]);
  const child = spawn(process.execPath, [...imports, MAIN, ...args], {
    cwd: ROOT,
    env: { ...process.env, NODE_OPTIONS: "", TIDEMARK_DEBUG: "", ...options.env },
    stdio: ["pipe", options.stdout ?? "pipe", "pipe"],
    detached: options.ownGroup === true,
    ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid }),
  });
  const stdout: Buffer[] = [];
  let stderr = "";
  const watchers = new Set<() => void>();
  child.stdout?.on("data", (chunk: Buffer) => {
    stdout.push(chunk);
    for (const watcher of watchers) watcher();
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  child.stdin?.on("error", () => {}); // It may end without reading.
  if (options.keepStdin === true) child.stdin?.write(options.stdin ?? "");
  else child.stdin?.end(options.stdin ?? "");
  const done = new Promise<CommandResult>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (exitCode, signal) => resolve({ exitCode, signal, stdout: Buffer.concat(stdout), stderr }));
  });
  const waitFor = (pattern: RegExp) =>
    new Promise<string>((resolve, reject) => {
      const watcher = () => {
        const match = pattern.exec(Buffer.concat(stdout).toString("utf8"));
        if (match !== null) resolve(match[0]);
      };
      watchers.add(watcher);
      watcher();
      done.then(
        (result) => reject(new Error(`ended before ${pattern}: ${result.stdout.toString("utf8")} ${result.stderr}`)),
        reject,
      );
    });
  return { child, done, waitFor };
}

export function runCommand(args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  return startCommand(args, options).done;
}

/** What a command says that cannot do its work: exit code 2 and one line on standard error. @returns the line */
export function oneLineOf(result: CommandResult): string {
  const lines = result.stderr.split("\n");
  if (result.exitCode !== 2 || lines.length !== 2 || lines[1] !== "" || !lines[0]?.startsWith("tidemark: ")) {
    throw new Error(`expected exit code 2 and one line, not ${result.exitCode ?? result.signal}: ${result.stderr}`);
  }
  return lines[0];
}

/** A directory that is removed afterwards, whatever its modes became. */
export async function temporaryDirectory(): Promise<{ readonly path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), "tidemark-scenario-"));
  await chmod(path, 0o755); // For commands that run as another user.
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** A user without rights when the tests run as root, whom modes do not stop; else ourselves. */
export const UNPRIVILEGED_UID = process.getuid?.() === 0 ? 65_534 : undefined;

/** Processes whose command line holds this text. */
export async function processesWith(text: string): Promise<readonly number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/u.test(name)) continue;
    const commandLine = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    if (commandLine.includes(text)) found.push(Number(name));
  }
  return found;
}
