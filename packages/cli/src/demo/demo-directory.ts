import { mkdir, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";

import type { FileLock } from "@tidemark/base";
import { NodeFileSystem } from "@tidemark/runtime-node";

import { CommandError, describeError, hasCode } from "../errors.ts";
import { DEMO_TOPICS } from "./input.ts";

/** An empty file that marks a directory as the demo's own. Its lock is held as long as a demo works there. */
const MARKER = "tidemark-demo";

/** What the demo and its engine make. Anything else in there was put by somebody else. */
const OWN_NAME = /^(?:tidemark-demo|log|state|state\.damaged-\d+|controller|broker-[1-3])$/u;
/** The same in the directory of a broker. */
const OWN_NAME_OF_BROKER = /^(?:log|state|state\.damaged-\d+)$/u;
/** In that of the controller. */
const OWN_NAME_OF_CONTROLLER = /^controller-state\.json(?:\.tmp)?$/u;

const OWN_PARTITIONS: ReadonlySet<string> = new Set(DEMO_TOPICS.map((topic) => `${topic}-0`));

export interface DemoDirectory {
  readonly path: string;
  readonly isTemporary: boolean;
  /** Lets the directory go, and removes it if it is temporary and not to be kept. Idempotent. */
  release(options: { readonly keep: boolean }): Promise<void>;
}

/**
 * The directory to work in, empty but for the marker, and locked against a second demo.
 *
 * A named directory may be absent, empty, or hold an earlier demo, which is then removed. In any other directory nothing is
 * touched.
 * @throws CommandError when it is used by another process, holds something else, or cannot be made or written
 */
export async function prepareDemoDirectory(named: string | undefined): Promise<DemoDirectory> {
  const isTemporary = named === undefined;
  const path = isTemporary ? await mkdtemp(join(tmpdir(), "tidemark-demo-")) : resolve(named);
  if (!isTemporary) await makeUsable(path);
  const lock = await takeLock(join(path, MARKER), path).catch(async (error: unknown) => {
    if (isTemporary) await rm(path, { recursive: true, force: true });
    throw error;
  });
  let isReleased = false;
  const release = async ({ keep }: { readonly keep: boolean }) => {
    if (isReleased) return;
    isReleased = true;
    await lock.release();
    if (isTemporary && !keep) await rm(path, { recursive: true, force: true });
  };
  try {
    await removeEarlierDemo(path);
  } catch (error) {
    await release({ keep: false });
    throw error;
  }
  return { path, isTemporary, release };
}

async function makeUsable(path: string): Promise<void> {
  const existing = await stat(path).catch(() => undefined);
  if (existing !== undefined && !existing.isDirectory()) throw new CommandError(`${path}: not a directory`);
  if (existing === undefined) await makeDirectory(path);
  const names = await readdir(path);
  if (names.length === 0) return;
  if (!names.includes(MARKER) || names.some((name) => !OWN_NAME.test(name))) throw notOurs(path);
  for (const name of names) {
    const own = name === "controller" ? OWN_NAME_OF_CONTROLLER : isBroker(name) ? OWN_NAME_OF_BROKER : undefined;
    if (own === undefined) continue;
    if ((await readdir(join(path, name))).some((inner) => !own.test(inner))) throw notOurs(join(path, name));
  }
  for (const logDirectory of logDirectories(path, names)) {
    const foreign = (await partitionDirectories(logDirectory)).filter((name) => !OWN_PARTITIONS.has(name));
    if (foreign.length > 0) {
      throw new CommandError(
        `${path}: holds ${foreign[0]}, which this demo did not write; name an empty or a new directory`,
      );
    }
  }
}

function notOurs(path: string): CommandError {
  return new CommandError(`${path}: not empty, and no directory of an earlier demo; name an empty or a new one`);
}

function isBroker(name: string): boolean {
  return name.startsWith("broker-");
}

/** Of one node, and of three brokers. */
function logDirectories(path: string, names: readonly string[]): readonly string[] {
  return [join(path, "log"), ...names.filter(isBroker).map((name) => join(path, name, "log"))];
}

/** With its missing parents. Not `recursive`, which calls a read-only file system "no such file or directory". */
async function makeDirectory(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    if (!hasCode(error, "ENOENT") || dirname(path) === path) throw error;
    if ((await stat(dirname(path)).catch(() => undefined)) !== undefined) throw error; // The parent is there and refuses.
    await makeDirectory(dirname(path));
    await mkdir(path);
  }
}

async function partitionDirectories(logDirectory: string): Promise<readonly string[]> {
  try {
    const entries = await readdir(logDirectory, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  }
}

async function takeLock(lockPath: string, path: string): Promise<FileLock> {
  try {
    return await new NodeFileSystem().lock(lockPath);
  } catch (error) {
    if (hasCode(error, "EBUSY")) throw new CommandError(`${path}: in use by another process`, { cause: error });
    throw new CommandError(`${path}: cannot work there: ${describeError(error)}`, { cause: error });
  }
}

/** Removes the logs and the states of an earlier demo, unless a process has them open. */
async function removeEarlierDemo(path: string): Promise<void> {
  const names = await readdir(path);
  for (const logDirectory of logDirectories(path, names)) {
    const exists = await stat(logDirectory).then(
      () => true,
      () => false,
    );
    if (!exists) continue;
    const lock = await takeLock(join(logDirectory, ".lock"), path);
    await lock.release();
  }
  for (const name of names) {
    if (name !== MARKER && OWN_NAME.test(name)) await rm(join(path, name), { recursive: true, force: true });
  }
}
