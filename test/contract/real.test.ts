import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { joinPath } from "@tidemark/base";
import {
  LmdbState,
  NodeFileSystem,
  PiscinaWorkerPool,
  SystemClock,
  SystemRandom,
  TcpNetwork,
} from "@tidemark/runtime-node";
import { describeClock } from "./suites/clock.ts";
import { describeFileHandle } from "./suites/file-handle.ts";
import { describeFileLock } from "./suites/file-lock.ts";
import type { FileSystemFixture } from "./suites/file-system.ts";
import { describeFileSystem } from "./suites/file-system.ts";
import { describeNetwork } from "./suites/network.ts";
import { describeRandom } from "./suites/random.ts";
import type { StateFixture } from "./suites/state.ts";
import { describeState } from "./suites/state.ts";
import { describeWorkerPool } from "./suites/worker-pool.ts";

async function temporaryDirectory(): Promise<{ readonly directory: string; readonly dispose: () => Promise<void> }> {
  const directory = await mkdtemp(joinPath(tmpdir(), "tidemark-contract-"));
  return { directory, dispose: () => rm(directory, { recursive: true, force: true }) };
}

async function makeFiles(): Promise<FileSystemFixture> {
  return { files: new NodeFileSystem(), ...(await temporaryDirectory()) };
}

async function makeState(): Promise<StateFixture> {
  const { directory, dispose } = await temporaryDirectory();
  return { open: () => LmdbState.open(joinPath(directory, "made/on/open")), dispose };
}

describeClock("operating system", async () => ({
  clock: new SystemClock(),
  // Waits by the event loop's own timer, not by the clock under test; late by a little, as a timer may be.
  pass: (ms) => new Promise((resolve) => void setTimeout(resolve, ms + 5)),
  dispose: async () => {},
}));

describeRandom("operating system", async () => ({ random: new SystemRandom(), dispose: async () => {} }));

describeFileSystem("operating system", makeFiles);
describeFileHandle("operating system", makeFiles);
describeFileLock("operating system", makeFiles);
describeState("lmdb", makeState);

describeWorkerPool("worker threads", async () => {
  const workers = new PiscinaWorkerPool({ threads: 2 });
  return { workers, dispose: () => workers.close() };
});

describeNetwork("TCP", async () => ({
  network: new TcpNetwork(),
  pass: (ms) => new Promise((resolve) => void setTimeout(resolve, ms)),
  dispose: async () => {},
}));
