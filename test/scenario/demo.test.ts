import { execFile } from "node:child_process";
import { appendFile, mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

import type { DemoReport } from "@tidemark/cli";
import { describe, expect, test } from "vitest";

import {
  type CommandResult,
  oneLineOf,
  processesWith,
  runCommand,
  startCommand,
  temporaryDirectory,
} from "./support/command.ts";

const LINE_BYTES_MAX = 1.5 * 1024 * 1024;

/** The log in a process of its own; `demo-cluster.test.ts` is about three brokers. */
const DEMO = ["demo", "--nodes", "1"];

/** With this one the first kill comes at once, so that a test that waits for it does not wait long. */
const EARLY_SEED = "98";

async function demoOf(
  directory: string,
  input: string | Uint8Array,
  ...args: readonly string[]
): Promise<{ readonly result: CommandResult; readonly report: DemoReport }> {
  await writeFile(join(directory, "input"), input);
  const result = await runCommand([
    ...DEMO,
    "--input",
    join(directory, "input"),
    "--directory",
    join(directory, "work"),
    "--report",
    join(directory, "report.json"),
    ...args,
  ]);
  expect(result.stderr).toBe("");
  return { result, report: JSON.parse(await readFile(join(directory, "report.json"), "utf8")) as DemoReport };
}

/** The values of a topic, joined as lines, as `tidemark fetch` prints them. */
async function fetchAll(directory: string): Promise<Buffer> {
  const result = await runCommand(["fetch", "lines", "--directory", join(directory, "work")]);
  expect(result).toMatchObject({ exitCode: 0, stderr: "" });
  return result.stdout;
}

/** A byte that is flipped in the kept files is found by verify and by dump, which change nothing. */
async function expectFlipToBeFound(logDirectory: string): Promise<void> {
  const clean = await runCommand(["verify", logDirectory]);
  expect(clean).toMatchObject({ exitCode: 0, stderr: "" });
  const partition = join(logDirectory, "lines-0");
  const [first = ""] = (await readdir(partition)).filter((name) => name.endsWith(".log")).sort();
  const path = join(partition, first);
  const bytes = await readFile(path);
  bytes.writeUInt8(bytes.readUInt8(100) ^ 4, 100);
  await writeFile(path, bytes);
  const verified = await runCommand(["verify", logDirectory]);
  expect(verified.exitCode).toBe(1);
  expect(verified.stdout.toString("utf8")).toContain(first);
  const dumped = await runCommand(["dump", path]);
  expect(dumped.exitCode).toBe(1);
  expect(dumped.stdout.toString("utf8")).toContain("isvalid: false");
  expect((await readFile(path)).equals(bytes)).toBe(true);
}

describe("tidemark demo --nodes 1", () => {
  test("many lines over several segments: killed twice where the seed says, nothing lost, figures that add up", async () => {
    await using directory = await temporaryDirectory();
    const lines = Array.from({ length: 20_000 }, (_unused, index) => `event ${index} ${"x".repeat(index % 97)}\n`);
    const { result, report } = await demoOf(directory.path, lines.join(""), "--seed", "7", "--segment-bytes", "262144");
    expect(result.exitCode).toBe(0);
    expect(report).toMatchObject({ verdict: "ok", problems: [], seed: 7, topic: "lines", segmentBytes: 262_144 });
    expect(report.kills.map((kill) => kill.threshold)).toEqual([7080, 19_846]); // The seed decides, always the same.
    let previous = 0;
    for (const kill of report.kills) {
      expect(kill.threshold).toBeGreaterThan(previous);
      expect(kill.acknowledged).toBeGreaterThanOrEqual(kill.threshold);
      expect(kill.recoveredLogEndOffset).toBeGreaterThanOrEqual(kill.acknowledged);
      expect(kill.recoveredLogEndOffset).toBeLessThan(20_000);
      expect(kill.recovery.wasCleanShutdown).toBe(false);
      previous = kill.threshold;
    }
    expect(report.segments.length).toBeGreaterThan(3);
    expect(report.segments.reduce((sum, segment) => sum + segment.records, 0)).toBe(20_000);
    expect(report.segments.every((segment) => segment.bytes <= 262_144)).toBe(true);
    expect(report.offsets).toEqual({
      logStartOffset: 0,
      logEndOffset: 20_000,
      flushedEndOffset: 20_000,
      recoveryPoint: 20_000,
    });
    expect(report.epochs.length).toBeGreaterThanOrEqual(1);
    const text = result.stdout.toString("utf8");
    expect(text).toMatch(/SIGKILL at [\d,]+ and [\d,]+ acknowledged records \(repeat with --seed 7\)/u);
    expect(text).toMatch(/^OK: 20,000 records acknowledged/mu);
    expect(text).not.toContain("\u001b"); // No colours into a pipe.
    expect((await fetchAll(directory.path)).toString("utf8")).toBe(lines.join(""));
    await expectFlipToBeFound(join(directory.path, "work", "log"));
  });

  test("hostile bytes are kept: empty lines, CRLF, NUL, invalid UTF-8, lines up to the limit, no last line break", async () => {
    await using directory = await temporaryDirectory();
    const input = Buffer.concat([
      Buffer.from("\n\n\r\n a\r\n"),
      Buffer.from([0x00, 0x0a, 0xff, 0xfe, 0xc3, 0x28, 0x0d, 0x0d, 0x0a]),
      Buffer.alloc(1024 * 1024, "x"),
      Buffer.from("\n\u2028\u0085\ufeff\n"),
      Buffer.alloc(LINE_BYTES_MAX, 0x80),
      Buffer.from("\n"),
      Buffer.alloc(1024 * 1024, 0x0d),
      Buffer.from("\n\nlast"),
    ]);
    const { result, report } = await demoOf(directory.path, input);
    expect(report).toMatchObject({ verdict: "ok", input: { lines: 12, longestLineBytes: LINE_BYTES_MAX } });
    expect(report.kills).toHaveLength(2);
    expect(result.exitCode).toBe(0);
    expect(report.input.endsWithNewline).toBe(false);
    const fetched = await fetchAll(directory.path);
    expect(fetched.equals(Buffer.concat([input, Buffer.from("\n")]))).toBe(true);
  });

  test.each([
    ["", 0, 0],
    ["\n", 1, 1],
    ["a\nb\nc", 3, 2],
  ])("an input as small as %j: %i records, %i kills", async (input, lines, kills) => {
    await using directory = await temporaryDirectory();
    const { result, report } = await demoOf(directory.path, input, "--seed", "1");
    expect(report).toMatchObject({ verdict: "ok", input: { lines } });
    expect(report.kills).toHaveLength(kills);
    expect(result.exitCode).toBe(0);
    expect(result.stdout.toString("utf8").includes("too small to kill 2 times")).toBe(kills < 2);
  });

  test("a line over the limit is refused by its number before anything is ingested", async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, "input");
    await writeFile(
      path,
      Buffer.concat([Buffer.from("a\nb\n"), Buffer.alloc(LINE_BYTES_MAX + 1, "x"), Buffer.from("\nc\n")]),
    );
    const work = join(directory.path, "work");
    const result = await runCommand([...DEMO, "--input", path, "--directory", work]);
    expect(oneLineOf(result)).toContain("line 3 is longer than 1.5 MiB");
    await expect(stat(work)).rejects.toMatchObject({ code: "ENOENT" });
  });

  test("the default input is the flights, each record the text of one object", async () => {
    await using directory = await temporaryDirectory();
    const reportPath = join(directory.path, "report.json");
    const work = join(directory.path, "work");
    const result = await runCommand([...DEMO, "--directory", work, "--report", reportPath]);
    expect(result).toMatchObject({ exitCode: 0, stderr: "" });
    const report = JSON.parse(await readFile(reportPath, "utf8")) as DemoReport;
    expect(report).toMatchObject({
      verdict: "ok",
      topic: "flights",
      input: { lines: 200_000 },
      segmentBytes: 2_097_152,
    });
    expect(report.kills).toHaveLength(2);
    const first = await runCommand(["fetch", "flights", "--directory", work, "--max-records", "1"]);
    expect(first.stdout.toString("utf8")).toBe('{"delay":0,"distance":1452,"time":0.0}\n');
  });
});

describe("a demo whose engine does wrong is not OK: verdict failed, exit code 1, the files are kept", () => {
  /** Runs the demo with `code` at work in the ingesting processes; `send` there is the original of `process.send`. */
  async function demoWith(code: string) {
    await using directory = await temporaryDirectory();
    const preload = join(directory.path, "misbehave.mjs");
    const body = `import { appendFileSync, readdirSync, readFileSync, truncateSync, statSync, unlinkSync, writeFileSync } from "node:fs";
      const task = process.argv[2] === "demo-ingest" ? JSON.parse(process.argv[3]) : undefined;
      const partition = task && task.directory + "/log/lines-0/";
      const segments = () => readdirSync(partition).filter((name) => name.endsWith(".log")).sort().map((name) => partition + name);
      if (task !== undefined) {
        const send = process.send.bind(process);
        process.send = (message, ...rest) => { ${code}; return send(message, ...rest); };
      }`;
    await writeFile(preload, body);
    await writeFile(
      join(directory.path, "input"),
      Array.from({ length: 3000 }, (_unused, index) => `line ${index}\n`).join(""),
    );
    const args = ["--segment-bytes", "8192", "--seed", "3", "--report", join(directory.path, "report.json")];
    const result = await runCommand([...DEMO, "--input", join(directory.path, "input"), ...args], {
      env: { TMPDIR: directory.path },
      imports: [preload],
    });
    expect(result).toMatchObject({ exitCode: 1, stderr: "" });
    expect(result.stdout.toString("utf8")).toMatch(/^FAILED: [\d,]+ problem/mu);
    const report = JSON.parse(await readFile(join(directory.path, "report.json"), "utf8")) as DemoReport;
    expect(report.verdict).toBe("failed");
    expect(report.problemCount).toBeGreaterThan(0);
    expect((await readdir(directory.path)).filter((name) => name.startsWith("tidemark-demo-"))).toHaveLength(1);
    return report.problems.join("\n");
  }

  test("it acknowledges more than it has", async () => {
    const problems = await demoWith('if (message.type === "acknowledged") message = { ...message, count: 2999 }');
    expect(problems).toMatch(/kill 1: 2999 records were acknowledged, the recovered log ends at \d+/u);
  });

  test("a bit of its files flips, an index entry points elsewhere, the last bytes are lost", async () => {
    const problems = await demoWith(`if (message.type === "closed") {
      const flip = (path, position) => {
        const bytes = readFileSync(path);
        bytes[position < 0 ? bytes.length + position : position] ^= 1;
        writeFileSync(path, bytes);
      };
      flip(segments()[1], -2); // In the value of its last record.
      flip(segments().map((name) => name.replace(/log$/, "index")).find((name) => statSync(name).size > 0), 7);
      const path = segments().at(-1);
      truncateSync(path, statSync(path).size - 1);
    }`);
    expect(problems).toContain("wrong CRC");
    expect(problems).toContain(".index");
    expect(problems).toContain("are no whole batch");
  });

  test("a segment is lost, the last one is there twice", async () => {
    const problems = await demoWith(`if (message.type === "closed") {
      const path = segments().at(-1);
      appendFileSync(path, readFileSync(path));
      unlinkSync(segments()[2]);
    }`);
    expect(problems).toContain("begins where offset");
    expect(problems).toMatch(/base offset \d+, expected 3000/u);
  });

  test("the process dies on its own", async () => {
    await using directory = await temporaryDirectory();
    const preload = join(directory.path, "misbehave.mjs");
    await writeFile(preload, 'if (process.argv[2] === "demo-ingest") setTimeout(() => process.abort(), 300);');
    await writeFile(join(directory.path, "input"), "line\n".repeat(300_000));
    const result = await runCommand([...DEMO, "--input", join(directory.path, "input"), "--seed", "3"], {
      imports: [preload],
    });
    expect(result.exitCode).toBe(1);
    expect(result.stderr).toMatch(/^tidemark: the ingesting process ended on its own \(signal SIGABRT\).*\n$/u);
  });
});

describe("what tidemark demo leaves behind", () => {
  test("a directory that holds anything else is refused and not touched", async () => {
    await using directory = await temporaryDirectory();
    await writeFile(join(directory.path, "input"), "a\n");
    const work = join(directory.path, "work");
    await mkdir(join(work, "log"), { recursive: true });
    await writeFile(join(work, "log", "precious"), "x");
    const args = [...DEMO, "--input", join(directory.path, "input"), "--directory", work];
    expect(oneLineOf(await runCommand(args))).toContain("not empty, and no directory of an earlier demo");
    expect(await readFile(join(work, "log", "precious"), "utf8")).toBe("x");
    expect(await readdir(work)).toEqual(["log"]);
  });

  test("an earlier demo's directory to which somebody added a topic is refused", async () => {
    await using directory = await temporaryDirectory();
    await demoOf(directory.path, "a\nb\n");
    const work = join(directory.path, "work");
    const appended = await runCommand(["append", "orders", "--directory", work], { stdin: "mine\n" });
    expect(appended).toMatchObject({ exitCode: 0, stderr: "" });
    const again = await runCommand([...DEMO, "--input", join(directory.path, "input"), "--directory", work]);
    expect(oneLineOf(again)).toContain("orders-0, which this demo did not write");
  });

  test("the temporary directory is removed, with --keep it stays", async () => {
    await using directory = await temporaryDirectory();
    const input = join(directory.path, "input");
    await writeFile(input, "");
    const env = { TMPDIR: directory.path };
    const gone = await runCommand([...DEMO, "--input", input], { env });
    expect(gone.exitCode).toBe(0);
    expect((await readdir(directory.path)).filter((name) => name.startsWith("tidemark-demo-"))).toEqual([]);
    const kept = await runCommand([...DEMO, "--input", input, "--keep"], { env });
    expect(kept.exitCode).toBe(0);
    const [name = ""] = (await readdir(directory.path)).filter((entry) => entry.startsWith("tidemark-demo-"));
    expect(kept.stdout.toString("utf8")).toContain(join(directory.path, name, "log"));
    expect(await readdir(join(directory.path, name, "log"))).toContain("lines-0");
  });

  test.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const)("%s: exit code %i, no process, no temporary directory left", async (signal, exitCode) => {
    await using directory = await temporaryDirectory();
    const args = [...DEMO, "--input", await manyLines(directory.path), "--seed", EARLY_SEED];
    const command = startCommand(args, { env: { TMPDIR: directory.path }, ownGroup: true });
    await command.waitFor(/killed/u);
    process.kill(-(command.child.pid ?? 0), signal); // To its children too, as Ctrl-C on a terminal.
    const result = await command.done;
    expect(result).toMatchObject({ exitCode, stderr: "" });
    expect(await processesWith(directory.path)).toEqual([]);
    expect((await readdir(directory.path)).filter((name) => name.startsWith("tidemark-demo-"))).toEqual([]);
  });

  test("others are refused while it works; its SIGKILL leaves no process behind, and the directory can be used again", async () => {
    await using directory = await temporaryDirectory();
    const input = await manyLines(directory.path);
    const work = join(directory.path, "work");
    const command = startCommand([...DEMO, "--input", input, "--directory", work, "--seed", EARLY_SEED]);
    await command.waitFor(/killed/u);
    for (const args of [
      [...DEMO, "--input", join(directory.path, "short")],
      ["append", "lines"],
    ]) {
      await writeFile(join(directory.path, "short"), "a\nb\n");
      expect(oneLineOf(await runCommand([...args, "--directory", work]))).toContain("in use by another process");
    }
    command.child.kill("SIGKILL");
    await command.done;
    await expect.poll(() => processesWith(work), { timeout: 10_000 }).toEqual([]);
    const again = [...DEMO, "--input", join(directory.path, "short"), "--directory", work];
    expect(await runCommand(again)).toMatchObject({ exitCode: 0, stderr: "" });
  });

  test("an input that changes meanwhile is told, whatever the log holds", async () => {
    await using directory = await temporaryDirectory();
    const input = join(directory.path, "input");
    await writeFile(input, "a line of some length\n".repeat(100_000));
    const args = ["--directory", join(directory.path, "work"), "--seed", EARLY_SEED];
    const command = startCommand([...DEMO, "--input", input, ...args]);
    await command.waitFor(/killed/u);
    await appendFile(input, "one more\n");
    expect(oneLineOf(await command.done)).toContain("changed while the demo was reading it");
  });

  /** Enough lines that the demo does not end while a test looks at it. */
  async function manyLines(directory: string): Promise<string> {
    const input = join(directory, "input");
    await writeFile(input, "a line of some length\n".repeat(3_000_000));
    return input;
  }
});

describe("tidemark demo where it cannot work", () => {
  test("a missing input, a directory and a pipe as input", async () => {
    await using directory = await temporaryDirectory();
    const missing = join(directory.path, "missing");
    expect(oneLineOf(await runCommand([...DEMO, "--input", missing]))).toBe(
      `tidemark: ${missing}: no such file or directory`,
    );
    expect(oneLineOf(await runCommand([...DEMO, "--input", directory.path]))).toContain("is a directory");
    await promisify(execFile)("mkfifo", [join(directory.path, "pipe")]);
    expect(oneLineOf(await runCommand([...DEMO, "--input", join(directory.path, "pipe")]))).toContain(
      "not a regular file",
    );
  });

  test("a report that could not be written is refused before the work", async () => {
    await using directory = await temporaryDirectory();
    const reportPath = join(directory.path, "missing", "report.json");
    expect(oneLineOf(await runCommand([...DEMO, "--report", reportPath]))).toContain("no such file or directory");
    expect(oneLineOf(await runCommand([...DEMO, "--report", directory.path]))).toContain("is a directory");
  });
});
