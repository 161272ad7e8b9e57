import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import type { ClusterDemoReport } from "@tidemark/cli";
import { describe, expect, test } from "vitest";

import {
  type CommandResult,
  oneLineOf,
  processesWith,
  type RunningCommand,
  runCommand,
  startCommand,
  temporaryDirectory,
} from "./support/command.ts";

/** Three brokers unless told otherwise: `--nodes` is not given here. */
async function startDemo(
  directory: string,
  input: string,
  ...args: readonly string[]
): Promise<RunningCommand & { readonly report: () => Promise<ClusterDemoReport> }> {
  await writeFile(join(directory, "input"), input);
  const reportPath = join(directory, "report.json");
  const paths = ["--input", join(directory, "input"), "--directory", join(directory, "work"), "--report", reportPath];
  const command = startCommand(["demo", ...paths, ...args], { ownGroup: true });
  return { ...command, report: async () => JSON.parse(await readFile(reportPath, "utf8")) as ClusterDemoReport };
}

function lines(count: number): string {
  return Array.from({ length: count }, (_unused, index) => `event ${index} ${"x".repeat(index % 97)}\n`).join("");
}

/** The process of one broker of the demo that works in this directory. */
async function processOf(directory: string, brokerId: number): Promise<number> {
  for (const pid of await processesWith(join(directory, "work", `broker-${brokerId}`))) return pid;
  throw new Error(`broker ${brokerId} does not run`);
}

function textOf(result: CommandResult): string {
  return result.stdout.toString("utf8");
}

describe("tidemark demo with three brokers", () => {
  test("the leader dies twice with records nobody else has: each cut exactly, all acknowledged on all replicas", async () => {
    await using directory = await temporaryDirectory();
    const input = lines(6000);
    const demo = await startDemo(directory.path, input, "--seed", "7", "--segment-bytes", "131072");
    const result = await demo.done;
    expect(result, textOf(result)).toMatchObject({ exitCode: 0, stderr: "" });
    const report = await demo.report();
    expect(report).toMatchObject({
      verdict: "ok",
      problems: [],
      problemCount: 0,
      seed: 7,
      nodes: 3,
      unplannedDeaths: 0,
    });
    // The seed decides; the same one always does the same.
    expect(report.failovers.map(({ threshold }) => threshold)).toEqual([2123, 5953]);
    expect(report.failovers.map(({ oldLeader, newLeader }) => [oldLeader, newLeader])).toEqual([
      [1, 2],
      [2, 1],
    ]);
    for (const { acknowledged, threshold, divergent, truncation } of report.failovers) {
      expect(acknowledged).toBe(threshold);
      expect(divergent.fromOffset).toBeGreaterThanOrEqual(threshold);
      expect(divergent.toOffset).toBeGreaterThan(divergent.fromOffset);
      expect(truncation).toMatchObject({ fromOffset: divergent.toOffset, toOffset: divergent.fromOffset });
    }
    const [first, second, third] = report.replicas;
    for (const replica of [first, second, third]) {
      expect(replica).toMatchObject({
        logStartOffset: 0,
        highWatermark: 6000,
        logEndOffset: 6000,
        epochs: first?.epochs,
      });
    }
    expect(first?.epochs.map(({ epoch }) => epoch)).toEqual([0, 1, 2]);
    const text = textOf(result);
    expect(text).toMatch(/^OK: 6,000 records acknowledged, each on all 3 replicas once and in order/mu);
    expect(text).not.toContain("\u001b"); // No colours into a pipe.

    const work = join(directory.path, "work");
    const described = await runCommand(["describe", work]);
    expect(described).toMatchObject({ exitCode: 0, stderr: "" });
    expect(textOf(described)).toMatch(/^lines-0: leader 1, epoch 2, ISR 1,2,3$/mu);
    expect(textOf(described).match(/│ +6,000 │ +6,000 │ +0@0 1@\d+ 2@\d+ │ stopped cleanly │/gu)).toHaveLength(3);
    const fetched = await runCommand(["fetch", "lines", "--directory", join(work, "broker-3")]);
    expect(textOf(fetched)).toBe(input);
  });

  test("a follower that is killed by hand, and a leader that is stopped and goes on, change nothing about the verdict", async () => {
    await using directory = await temporaryDirectory();
    const demo = await startDemo(directory.path, lines(60_000), "--seed", "3");
    await demo.waitFor(/death 1: followers are held back/u);
    process.kill(await processOf(directory.path, 3), "SIGKILL");
    await demo.waitFor(/^restart/mu);
    const stopped = await processOf(directory.path, 2);
    process.kill(stopped, "SIGSTOP");
    setTimeout(() => process.kill(stopped, "SIGCONT"), 4000);
    const result = await demo.done;
    expect(result, textOf(result)).toMatchObject({ exitCode: 0, stderr: "" });
    expect(textOf(result)).toMatch(/^died +broker 3, which nobody had planned \(signal SIGKILL\)/mu);
    expect(await demo.report()).toMatchObject({ verdict: "ok", unplannedDeaths: 1 });
    expect((await demo.report()).failovers).toHaveLength(2);
  });

  test.each([
    ["", 0],
    ["only", 1],
    ["a\n\nb\r\n", 2],
  ])("an input as small as %j: the leader dies %i times", async (input, deaths) => {
    await using directory = await temporaryDirectory();
    const demo = await startDemo(directory.path, input);
    const result = await demo.done;
    expect(result, textOf(result)).toMatchObject({ exitCode: 0, stderr: "" });
    const report = await demo.report();
    expect(report.verdict).toBe("ok");
    expect(report.failovers).toHaveLength(deaths);
    expect(textOf(result).includes("too small for 2 deaths")).toBe(deaths < 2);
  });
});

test("replicas whose files change behind the engine's back: verdict failed, exit code 1, each of them named", async () => {
  await using directory = await temporaryDirectory();
  const preload = join(directory.path, "misbehave.mjs");
  const code = `import { readFileSync, writeFileSync } from "node:fs";
    const task = process.argv[2] === "demo-broker" ? JSON.parse(process.argv[3]) : undefined;
    if (task !== undefined) {
      const send = process.send.bind(process);
      const change = (path, edit) => writeFileSync(path, edit(readFileSync(path)));
      process.send = (message, ...rest) => {
        const log = task.directory + "/log/";
        if (message.type === "closed" && task.brokerId === 1) change(log + "lines-0/00000000000000000000.log", (bytes) => (bytes[bytes.length - 1] ^= 1, bytes));
        if (message.type === "closed" && task.brokerId === 2) change(log + "lines-0/leader-epoch-checkpoint", (bytes) => String(bytes).replace(/1 (\\d+)/, (_all, offset) => "1 " + (Number(offset) + 1)));
        if (message.type === "closed" && task.brokerId === 3) change(log + "replication-offset-checkpoint", (bytes) => String(bytes).replace("lines 0 900", "lines 0 899"));
        return send(message, ...rest);
      };
    }`;
  await writeFile(preload, code);
  await writeFile(join(directory.path, "input"), lines(900));
  const reportPath = join(directory.path, "report.json");
  const args = ["demo", "--input", join(directory.path, "input"), "--report", reportPath, "--seed", "3"];
  const result = await runCommand(args, { env: { TMPDIR: directory.path }, imports: [preload] });
  expect(result, textOf(result)).toMatchObject({ exitCode: 1, stderr: "" });
  expect(textOf(result)).toMatch(/^FAILED: [\d,]+ problem/mu);
  const { verdict, problems } = JSON.parse(await readFile(reportPath, "utf8")) as ClusterDemoReport;
  expect(verdict).toBe("failed");
  expect(problems).toContainEqual(expect.stringMatching(/^broker 1: .*wrong CRC/u));
  expect(problems).toContainEqual(expect.stringMatching(/^broker 2: its epoch cache says/u));
  expect(problems).toContainEqual(expect.stringMatching(/^broker 3: its high watermark is 899/u));
  expect(problems).toContainEqual(expect.stringMatching(/^brokers 1 and 2 differ/u));
  // The evidence is kept.
  expect((await readdir(directory.path)).filter((name) => name.startsWith("tidemark-demo-"))).toHaveLength(1);
});

describe("what a demo with three brokers leaves behind", () => {
  test("Ctrl-C: exit code 130, no process, no temporary directory", async () => {
    await using directory = await temporaryDirectory();
    await writeFile(join(directory.path, "input"), lines(60_000));
    const command = startCommand(["demo", "--input", join(directory.path, "input")], {
      env: { TMPDIR: directory.path },
      ownGroup: true,
    });
    await command.waitFor(/^failover/mu);
    process.kill(-(command.child.pid ?? 0), "SIGINT"); // To its children too, as Ctrl-C on a terminal.
    expect(await command.done).toMatchObject({ exitCode: 130, stderr: "" });
    expect(await processesWith(directory.path)).toEqual([]);
    expect((await readdir(directory.path)).filter((name) => name.startsWith("tidemark-demo-"))).toEqual([]);
  });

  test("a second demo is refused meanwhile; SIGKILL of the first leaves no process and no lock behind", async () => {
    await using directory = await temporaryDirectory();
    const work = join(directory.path, "work");
    const demo = await startDemo(directory.path, lines(60_000));
    await demo.waitFor(/^three brokers/mu);
    const again = ["demo", "--input", join(directory.path, "input"), "--directory", work, "--nodes", "1"];
    expect(oneLineOf(await runCommand(again))).toContain("in use by another process");
    demo.child.kill("SIGKILL");
    await demo.done;
    await expect.poll(() => processesWith(work), { timeout: 10_000 }).toEqual([]);
    await writeFile(join(directory.path, "input"), "");
    expect(await runCommand(again)).toMatchObject({ exitCode: 0, stderr: "" });
  });
});
