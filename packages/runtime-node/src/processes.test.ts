import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { joinPath } from "@tidemark/base";
import { LmdbState } from "./lmdb-state.ts";
import { NodeFileSystem } from "./node-file-system.ts";

// What only shows between processes. Each child is one Node process (not the `tsx` command, which is two), so that SIGKILL
// reaches the program itself.

const PACKAGE_DIRECTORY = fileURLToPath(new URL("..", import.meta.url));
const NODE_ARGUMENTS = [
  "--import",
  pathToFileURL(createRequire(import.meta.url).resolve("tsx")).href,
  "--conditions",
  "tidemark-source",
  "--input-type=module",
  "--eval",
];
const files = new NodeFileSystem();
const children: ChildProcess[] = [];
let directory: string;
let lockPath: string;

beforeEach(async () => {
  directory = await mkdtemp(joinPath(tmpdir(), "tidemark-processes-"));
  lockPath = joinPath(directory, ".lock");
});

afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await rm(directory, { recursive: true, force: true });
});

/** A program in a process of its own, what it printed, and how it ended. `limits` are `ulimit` calls made before it. */
class Program {
  output = "";
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown[]>;

  constructor(text: string, limits = "true") {
    const program = `import * as runtime from "@tidemark/runtime-node"; const directory = ${JSON.stringify(directory)};\n${text}`;
    const command = [process.execPath, ...NODE_ARGUMENTS, program];
    this.#child = spawn("/bin/sh", ["-c", `${limits}; exec "$@"`, "sh", ...command], {
      cwd: PACKAGE_DIRECTORY,
      stdio: ["ignore", "pipe", "pipe"],
    });
    children.push(this.#child);
    this.#ended = once(this.#child, "close");
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => (this.output += text));
    }
  }

  /** Resolves once the program printed the text. */
  async printed(text: string): Promise<void> {
    while (!this.output.includes(text)) {
      if (this.#child.exitCode !== null) expect.fail(`ended without ${text}: ${this.output}`);
      await Promise.race([once(this.#child.stdout ?? this.#child, "data"), this.#ended]);
    }
  }

  async ended(): Promise<{ exitCode: unknown; signal: unknown; output: string }> {
    const [exitCode, signal] = await this.#ended;
    return { exitCode, signal, output: this.output };
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#ended;
  }
}

const TRY_LOCK = `
  try { await new runtime.NodeFileSystem().lock(directory + "/.lock"); console.log("locked"); }
  catch (error) { console.log(error.code); }
`;

describe("a lock between processes", () => {
  test("is respected by the other process, also after the file was read and closed here, until it is released", async () => {
    const lock = await files.lock(lockPath);
    await (await files.open(lockPath, "read")).close();
    await (await files.open(lockPath, "truncate")).close();
    expect((await new Program(TRY_LOCK).ended()).output).toBe("EBUSY\n");
    await expect(files.lock(lockPath)).rejects.toMatchObject({ code: "EBUSY" });
    await lock.release();
    expect((await new Program(TRY_LOCK).ended()).output).toBe("locked\n");
  });

  test("of the other process is respected here, and gone after SIGKILL", async () => {
    const holder = new Program(`${TRY_LOCK} setInterval(() => {}, 1000);`);
    await holder.printed("locked");
    await expect(files.lock(lockPath)).rejects.toMatchObject({ code: "EBUSY", operation: "lock", path: lockPath });
    await holder.kill();
    const lock = await files.lock(lockPath);
    await lock.release();
    expect(await files.list(directory)).toEqual([".lock"]);
  });

  test("is not handed down to a child process", async () => {
    const holder = new Program(`
      import { spawn } from "node:child_process";
      await new runtime.NodeFileSystem().lock(directory + "/.lock");
      const heir = spawn("sleep", ["60"], { stdio: "ignore" });
      console.log("heir", heir.pid, "started"); setInterval(() => {}, 1000);
    `);
    await holder.printed("started");
    await holder.kill();
    const heirId = Number(/heir (\d+)/.exec(holder.output)?.[1]);
    const lock = await files.lock(lockPath);
    expect(process.kill(heirId, "SIGKILL")).toBe(true);
    await lock.release();
  });
});

test("a program that closes nothing ends by itself: timers, files, locks, state and idle threads hold up no exit", async () => {
  const { exitCode, output } = await new Program(`
    const environment = runtime.openEnvironment({ workers: { idleMs: 3_600_000 } });
    const timer = environment.clock.setTimer(3_600_000, () => console.log("fired"));
    const file = await environment.files.open(directory + "/file", "create");
    await file.writeAt(new Uint8Array(10), 0);
    await environment.files.lock(directory + "/.lock");
    const state = await runtime.LmdbState.open(directory + "/state");
    await state.commit([{ key: "a", value: new Uint8Array(1) }], { sync: true });
    console.log(await environment.workers.run("crc32c", { payload: new TextEncoder().encode("123456789") }));
    console.log("last line");
  `).ended();
  expect(output).toBe("3808858755\nlast line\n");
  expect(exitCode).toBe(0);
});

test("a program that only makes an environment starts no thread", async () => {
  const { exitCode, output } = await new Program(`
    import { readdirSync } from "node:fs";
    const before = readdirSync("/proc/self/task").length;
    const environment = runtime.openEnvironment();
    console.log(readdirSync("/proc/self/task").length - before, environment.workers.threadCount);
    await environment.close();
  `).ended();
  expect(output).toBe("0 0\n");
  expect(exitCode).toBe(0);
});

test("commits that resolved are there after SIGKILL, whether synced or not", async () => {
  const program = new Program(`
    const state = await runtime.LmdbState.open(directory + "/state");
    for (let index = 0; index < 20; index++) {
      await state.commit([{ key: "key-" + index, value: new Uint8Array(100).fill(index) }], { sync: index % 2 === 0 });
    }
    console.log("committed"); setInterval(() => {}, 1000);
  `);
  await program.printed("committed");
  await program.kill();
  const state = await LmdbState.open(joinPath(directory, "state"));
  expect(state.keys("key-")).toHaveLength(20);
  expect(state.get("key-19")).toEqual(new Uint8Array(100).fill(19));
  await state.close();
});

describe("limits of the process", () => {
  test("no descriptor left is EMFILE, and an open works again once some are closed", async () => {
    const { output } = await new Program(
      `
        const files = new runtime.NodeFileSystem(), open = [];
        try { for (;;) open.push(await files.open(directory + "/file", "create")); } catch (error) { console.log(error.code); }
        await Promise.all(open.map((file) => file.close()));
        await (await files.open(directory + "/file", "read")).close();
        console.log("open again");
      `,
      "ulimit -n 64",
    ).ended();
    expect(output).toBe("EMFILE\nopen again\n");
  });

  test("refused calls keep no descriptor", async () => {
    const { output } = await new Program(
      `
        const files = new runtime.NodeFileSystem(), counts = {};
        const count = (error) => { counts[error.code] = (counts[error.code] ?? 0) + 1; };
        const lock = await files.lock(directory + "/.lock");
        for (let round = 0; round < 100; round++) {
          await files.lock(directory + "/.lock").catch(count);
          await files.open(directory, "read").catch(count);
          await files.syncDirectory(directory);
        }
        console.log(JSON.stringify(counts));
      `,
      "ulimit -n 64",
    ).ended();
    expect(output).toBe(`{"EBUSY":100,"EISDIR":100}\n`);
  });

  test("a state that cannot grow rejects that commit with IO, keeps what it had, and takes the next that fits", async () => {
    // The limit on a file's size stands in for a full disk: both cut the write short.
    const { output, exitCode } = await new Program(
      `
        const state = await runtime.LmdbState.open(directory + "/state");
        await state.commit([{ key: "first", value: new Uint8Array(1000) }], { sync: true });
        let failure;
        for (let index = 0; index < 500 && failure === undefined; index++) {
          const puts = ["left", "right"].map((side) => ({ key: side + index, value: new Uint8Array(5000) }));
          await state.commit(puts, { sync: true }).catch((error) => { failure = error; });
        }
        const keys = state.keys("");
        const isWhole = keys.filter((key) => key.startsWith("left")).length === keys.filter((key) => key.startsWith("right")).length;
        console.log("result", failure.name, failure.code, isWhole, state.get("first").length);
        await state.commit([{ key: "left0", value: undefined }], { sync: true });
        console.log("result", state.get("left0"), state.get("right0").length);
        await state.close();
      `,
      "ulimit -f 4096",
    ).ended();
    expect(output).toContain("result StateError IO true 1000\n");
    expect(output).toContain("result undefined 5000\n");
    expect(exitCode).toBe(0);
  });
});
