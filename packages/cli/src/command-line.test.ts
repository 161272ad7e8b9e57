import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Tidemark } from "@tidemark/server";
import { encodePlan, planOf } from "@tidemark/simulation";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { runCommandLine } from "./command-line.ts";
import { VERSION } from "./version.ts";

type WriteDone = (error?: Error | null) => void;

/** Runs the command in this process, with standard output and error caught. */
async function run(...args: readonly string[]): Promise<{ exitCode: number; stdout: string; stderr: string }> {
  const written = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  const spies = (["stdout", "stderr"] as const).map((name) =>
    vi.spyOn(process[name], "write").mockImplementation((chunk: string | Uint8Array, ...rest: readonly unknown[]) => {
      written[name].push(Buffer.from(chunk as string));
      const done = rest.find((argument): argument is WriteDone => typeof argument === "function");
      done?.();
      return true;
    }),
  );
  const { error } = console;
  try {
    const exitCode = await runCommandLine(args);
    return {
      exitCode,
      stdout: Buffer.concat(written.stdout).toString("utf8"),
      stderr: Buffer.concat(written.stderr).toString("utf8"),
    };
  } finally {
    console.error = error;
    for (const spy of spies) spy.mockRestore();
  }
}

describe("words that are wrong: one line, exit code 2", () => {
  test.each([
    [["--nonsense"], "unknown option --nonsense"],
    [["demo", "--nonsense"], "unknown option --nonsense"],
    [["demo", "--seed"], "option --seed needs a value"],
    [["demo", "--seed", "x"], '--seed must be a whole number from 0 to 4294967295, not "x"'],
    [["demo", "--seed", "1", "--seed", "2"], "option --seed was given more than once"],
    [["demo", "--segment-bytes", "4095"], '--segment-bytes must be a whole number from 4096 to 1073741824, not "4095"'],
    [["fetch"], "missing required args for command fetch <topic>"],
    [["fetch", "a", "b"], "unused args: b"],
    [["fetch", "a", "--from", "sometime"], '--from must be earliest, latest or an offset, not "sometime"'],
    [["offsets", "a", "--at", "soon"], '--at must be earliest, latest, max-timestamp or a time, not "soon"'],
    [["fetch", "a", "--format", "xml"], '--format must be one of value, json, hex, not "xml"'],
    [["demo", "--nodes", "2"], '--nodes must be 1 or 3, not "2"'],
    [["dump"], "missing required args for command dump <...files>"],
    [["describe"], "missing required args for command describe <...dirs>"],
    [["simulate", "--seeds", "5"], '--seeds must be a whole number from 0 to 4294967295, not ""'],
    [["simulate", "--seeds", "5..1"], "--seeds ends before it begins: 5..1"],
    [["simulate", "--seed", "1", "--seeds", "1..2"], "one of --seed, --seeds, --minutes and --plan says what to run"],
    [
      ["simulate", "--seeds", "1..2", "--trace"],
      "--trace, --html and --shrink are for one run: --seed N or --plan FILE",
    ],
  ])("%j", async (args, line) => {
    expect(await run(...args)).toEqual({ exitCode: 2, stdout: "", stderr: `tidemark: ${line}\n` });
  });
});

test.each([["--version"], ["-v"]])("%s prints the version", async (word) => {
  expect(await run(word)).toEqual({ exitCode: 0, stdout: `${VERSION}\n`, stderr: "" });
});

/** Of some runs of a simulation, on a machine that is busy with other things. */
const RUN_TIMEOUT_MS = 90_000;

describe("simulate", () => {
  let directory = "";
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "tidemark-simulate-"));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  test("a seed: its steps, its page, a line in the ledger for each call", { timeout: RUN_TIMEOUT_MS }, async () => {
    const page = join(directory, "page.html");
    const ledger = join(directory, "ledger.ndjson");
    const traced = await run("simulate", "--seed", "22", "--trace", "--html", page, "--ledger", ledger);
    expect(traced).toMatchObject({ exitCode: 0, stderr: "" });
    expect(traced.stdout).toMatch(/^ +0\.\d{6} {2}decision {7}Controller: broker 1 leads in epoch 0/mu);
    expect(traced.stdout).toMatch(/^OK {9}no rule was broken$/mu);
    expect(await readFile(page, "utf8")).toContain("<title>Seed 22: no rule was broken</title>");
    expect(await run("simulate", "--seeds", "22..23", "--ledger", ledger)).toMatchObject({ exitCode: 0 });
    const lines = (await readFile(ledger, "utf8")).trimEnd().split("\n");
    expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { version: VERSION, firstSeed: 22, lastSeed: 22, seeds: 1, failed: 0 },
      { firstSeed: 22, lastSeed: 23, seeds: 2, failed: 0 },
    ]);
  });

  test(
    "a plan that is run again gives the same history as its seed; a file that is none is told",
    { timeout: RUN_TIMEOUT_MS },
    async () => {
      const path = join(directory, "plan.json");
      await writeFile(path, encodePlan(planOf(22)));
      const steps = (text: string): string[] => text.split("\n").filter((line) => /^ +\d+\.\d{6} /u.test(line));
      const fromPlan = steps((await run("simulate", "--plan", path, "--trace")).stdout);
      expect(fromPlan.length).toBeGreaterThan(100);
      expect(fromPlan).toEqual(steps((await run("simulate", "--seed", "22", "--trace")).stdout));
      await writeFile(path, "{}");
      const refused = await run("simulate", "--plan", path);
      expect(refused).toMatchObject({ exitCode: 2, stdout: "" });
      expect(refused.stderr).toContain("is not a plan of this version");
    },
  );
});

describe("commands on a directory", () => {
  let directory = "";
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "tidemark-command-line-"));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  test("a directory or a topic that is missing, and a file in its place, are told and not made", async () => {
    const missing = join(directory, "missing");
    const file = join(directory, "file");
    await writeFile(file, "x");
    for (const [args, reason] of [
      [["fetch", "orders", "--directory", missing], "missing: no such file or directory"],
      [["verify", missing], "missing: no such file or directory"],
      [["dump", `${missing}.log`], "missing.log: no such file or directory"],
      [
        ["append", "orders", "--file", missing, "--directory", join(directory, "data")],
        "missing: no such file or directory",
      ],
      [
        ["append", "orders", "--file", directory, "--directory", join(directory, "data")],
        "is a directory, not a file of lines",
      ],
      [["fetch", "orders", "--directory", file], "file: not a directory"],
      [["append", "orders", "--file", file, "--directory", file], "not a directory"],
      [["verify", file], "file: not a directory"],
      [["demo", "--input", file, "--directory", file], "file: not a directory"],
      [["dump", directory], "not a file that dump knows"],
      [["describe", missing], "missing: no such file or directory"],
      [["describe", file], "file: not a directory"],
    ] as const) {
      const result = await run(...args);
      expect(result, args.join(" ")).toMatchObject({ exitCode: 2, stdout: "" });
      expect(result.stderr).toMatch(/^tidemark: .*\n$/u);
      expect(result.stderr).toContain(reason);
    }
    expect(await readdir(directory)).toEqual(["file"]);
    await mkdir(missing);
    expect((await run("fetch", "orders", "--directory", missing)).stderr).toContain('there is no topic "orders"');
    expect((await run("verify", missing)).stderr).toContain("holds no log");
    expect((await run("describe", missing)).stderr).toContain("holds no log");
    expect(await readdir(missing)).toEqual([]);
  });

  test("a directory that is open elsewhere is told by those who write, and verified by verify", async () => {
    await using log = await Tidemark.open({ directory });
    const orders = await log.topic("orders");
    await orders.append({ value: "x" });
    for (const args of [
      ["fetch", "orders"],
      ["append", "orders", "--file", "/dev/null"],
    ]) {
      const result = await run(...args, "--directory", directory);
      expect(result).toMatchObject({ exitCode: 2, stdout: "" });
      expect(result.stderr).toMatch(/^tidemark: .* in use by another process.*\n$/u);
    }
    expect(await run("verify", directory)).toMatchObject({ exitCode: 0, stderr: "" });
    const described = await run("describe", directory);
    expect(described).toMatchObject({ exitCode: 0, stderr: "" });
    expect(described.stdout).toMatch(/^orders-0\n/mu);
    expect(described.stdout).toMatch(/│ +1 │ +n\/a │ +0 │ +\S+ │ +1 │ +0@0 │ +in use │/u);
    const [replica] = JSON.parse((await run("describe", "--json", directory)).stdout) as unknown[];
    expect(replica).toMatchObject({ topic: "orders", logEndOffset: 1, status: "in use" });
    await log.topic("prices", { cleanupPolicy: "compact" });
    expect((await run("describe", directory)).stdout).toMatch(
      /cleaner offset │ +dirty bytes[\s\S]*│ +0 │ +0 │ +0@0 │/u,
    );
  });

  test("offsets: one line a partition, by name or by time", async () => {
    {
      await using log = await Tidemark.open({ directory });
      const orders = await log.topic("orders", { partitions: 2 });
      const day = Date.UTC(2026, 0, 2);
      await orders.append(
        [5, day, 7].map((timestamp) => ({ value: "v", timestamp })),
        { partition: 1 },
      );
      await orders.deleteRecords(1, 1);
    }
    const offsets = async (...args: string[]) =>
      (await run("offsets", "orders", "--directory", directory, ...args)).stdout;
    expect(await offsets()).toBe("orders:0:0\norders:1:3\n");
    expect(await offsets("--at", "earliest")).toBe("orders:0:0\norders:1:1\n");
    expect(await offsets("--at", "max-timestamp")).toBe("orders:0:\norders:1:1\n");
    expect(await offsets("--at", "2026-01-02")).toBe("orders:0:\norders:1:1\n");
    expect(await offsets("--at", "2026-01-02T00:00:00.001")).toBe("orders:0:\norders:1:\n");
    expect(await offsets("--at", "6")).toBe("orders:0:\norders:1:1\n");
  });

  test("fetch: where it begins and ends, and how records are shown", async () => {
    {
      await using log = await Tidemark.open({ directory });
      const orders = await log.topic("orders", { partitions: 2 });
      const value = Uint8Array.of(0xff, 0x0d);
      await orders.append(
        [
          { key: "k", value: "v:w", headers: { h: "x" }, timestamp: 5 },
          { value: "", timestamp: 6 },
          { value, timestamp: 7 },
          { key: "k", value: null, timestamp: 8 },
        ],
        { partition: 1 },
      );
    }
    const fetch = (...args: string[]) => run("fetch", "orders", "--directory", directory, ...args);
    const partition = ["--partition", "1"];
    expect(await fetch()).toEqual({ exitCode: 0, stdout: "", stderr: "" });
    expect((await fetch(...partition, "--max-records", "2")).stdout).toBe("v:w\n\n");
    expect((await fetch(...partition, "--max-records", "0")).stdout).toBe("");
    expect((await fetch(...partition, "--from", "1", "--format", "hex")).stdout).toBe("\nff0d\nnull\n");
    expect((await fetch(...partition, "--from", "latest")).stdout).toBe("");
    const { stdout } = await fetch(...partition, "--format", "json");
    expect(
      stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line) as unknown),
    ).toEqual([
      { partition: 1, offset: 0, timestamp: 5, key: "k", value: "v:w", headers: [{ key: "h", value: "x" }] },
      { partition: 1, offset: 1, timestamp: 6, key: null, value: "", headers: [] },
      { partition: 1, offset: 2, timestamp: 7, key: null, valueBase64: "/w0=", headers: [] },
      { partition: 1, offset: 3, timestamp: 8, key: "k", value: null, headers: [] },
    ]);
    expect((await fetch(...partition, "--from", "5")).stderr).toContain("offset 5 is not in 0..4");
    expect((await fetch("--partition", "2")).stderr).toContain("partitions 0..1, not 2");
  });

  test.each(["gzip", "snappy", "lz4", "zstd"])(
    "append --compression %s: fetch, dump and verify read it",
    async (codec) => {
      const file = join(directory, "lines");
      const data = join(directory, "data");
      const lines = Array.from({ length: 300 }, (_, at) => `line ${at} of three hundred`);
      await writeFile(file, `${lines.join("\n")}\n`);
      const append = (...args: string[]) => run("append", "squeezed", "--file", file, "--directory", data, ...args);
      expect((await append("--compression", codec)).stdout).toContain(
        "300 records appended to squeezed-0, offsets 0 to 299",
      );
      expect((await run("fetch", "squeezed", "--directory", data)).stdout).toBe(`${lines.join("\n")}\n`);
      const segment = join(data, "log", "squeezed-0", "00000000000000000000.log");
      const dumped = await run("dump", segment, "--records");
      expect(dumped.stdout).toContain(`compresscodec: ${codec} `);
      expect(dumped.stdout).toContain("| offset: 299 ");
      expect((await run("verify", data)).stdout).toContain("300 records");
      expect((await append()).stdout).toContain("offsets 300 to 599");
      expect((await append("--compression", "none")).stdout).toContain("offsets 600 to 899");
      expect((await run("dump", segment)).stdout).toMatch(
        new RegExp(`compresscodec: ${codec} .*compresscodec: none `, "su"),
      );
    },
  );

  test("append: a codec or a level that there is not", async () => {
    const append = (...args: string[]) =>
      run("append", "new", "--file", "/dev/null", "--directory", join(directory, "data"), ...args);
    expect((await append("--compression", "brotli")).stderr).toContain("none, gzip, snappy, lz4, zstd");
    expect((await append("--compression", "gzip", "--compression-level", "10")).stderr).toContain("1..9");
    expect((await append("--compression", "lz4", "--compression-level", "3")).stderr).toContain("has no levels");
    expect((await append("--compression", "zstd", "--compression-level=-7")).stdout).toContain("no record appended");
  });

  test("append: keys, partitions, and what stops it", async () => {
    const file = join(directory, "007"); // A name that is a number.
    const data = ["--file", file, "--directory", join(directory, "data")];
    const fetch = async (topic: string, ...args: string[]) =>
      (await run("fetch", topic, "--directory", join(directory, "data"), ...args)).stdout;
    await writeFile(file, "k=v=w\n=\nx=");
    expect((await run("append", "keyed", "--key-separator", "=", ...data)).stdout).toBe(
      "3 records appended to keyed-0, offsets 0 to 2\n",
    );
    expect(await fetch("keyed", "--format", "json")).toMatch(
      /"key":"k","value":"v=w".*\n.*"key":"","value":"".*\n.*"key":"x"/u,
    );
    await writeFile(file, "a\nb\n");
    expect((await run("append", "three", "--partition", "2", ...data)).stdout).toContain(
      "appended to three-2, offsets 0 to 1",
    );
    expect(await fetch("three", "--partition", "2")).toBe("a\nb\n");
    expect((await run("append", "three", "--partition", "3", ...data)).stderr).toContain("partitions 0..2, not 3");
    await writeFile(file, "");
    expect((await run("append", "three", ...data)).stdout).toBe("no record appended to three: the input has no line\n");
    await writeFile(file, "a=1\nb\n");
    expect((await run("append", "keyed", "--key-separator", "=", ...data)).stderr).toContain(
      "line 2 has no key separator",
    );
    expect((await run("append", "keyed", "--key-separator", "", ...data)).stderr).toContain("must not be empty");
    await writeFile(file, `a\nb\n${"x".repeat(1024 * 1024)}\nc\n`);
    expect((await run("append", "long", ...data)).stderr).toMatch(
      /line 3 is too long .*; 2 records before it were appended\n$/u,
    );
    expect(await fetch("long")).toBe("a\nb\n");
  });
});
