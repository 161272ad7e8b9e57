import { chmod, open, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { describe, expect, test } from "vitest";

import { oneLineOf, runCommand, startCommand, temporaryDirectory, UNPRIVILEGED_UID } from "./support/command.ts";

/** Every file below a directory: its path, its time of change, its bytes. */
async function snapshot(directory: string): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>();
  for (const entry of await readdir(directory, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    const { mtimeMs, ctimeMs } = await stat(path);
    files.set(path, `${mtimeMs} ${ctimeMs} ${entry.isFile() ? (await readFile(path)).toString("latin1") : ""}`);
  }
  return files;
}

describe("words of the command line", () => {
  test("--version prints the version, also behind a leading --", async () => {
    const manifest = JSON.parse(
      await readFile(new URL("../../packages/cli/package.json", import.meta.url), "utf8"),
    ) as {
      version: string;
    };
    const result = await runCommand(["--", "--version"]);
    expect(result).toMatchObject({ exitCode: 0, stderr: "" });
    expect(result.stdout.toString("utf8")).toBe(`${manifest.version}\n`);
  });

  test("--help lists the commands, COMMAND --help its options; hidden commands stay hidden", async () => {
    const general = await runCommand(["--help"]);
    expect(general).toMatchObject({ exitCode: 0, stderr: "" });
    for (const name of [
      "demo",
      "append <topic>",
      "fetch <topic>",
      "dump <...files>",
      "verify <dir>",
      "repair <dir>",
      "describe <...dirs>",
      "simulate",
    ]) {
      expect(general.stdout.toString("utf8")).toContain(name);
    }
    expect(general.stdout.toString("utf8")).not.toMatch(/demo-\w/u);
    const demo = await runCommand(["demo", "--help"]);
    expect(demo).toMatchObject({ exitCode: 0, stderr: "" });
    expect(demo.stdout.toString("utf8")).toContain("--seed <number>");
  });

  test("no command and an unknown command: help, one line, exit code 2", async () => {
    for (const [args, line] of [
      [[], "tidemark: no command given"],
      [["nonsense"], 'tidemark: unknown command "nonsense"'],
    ] as const) {
      const result = await runCommand(args);
      expect(oneLineOf(result)).toBe(line);
      expect(result.stdout.toString("utf8")).toContain("Commands:");
    }
  });

  test("TIDEMARK_DEBUG=1 adds the stack", async () => {
    const result = await runCommand(["verify", "/nonexistent/directory"], { env: { TIDEMARK_DEBUG: "1" } });
    expect(result.exitCode).toBe(2);
    expect(result.stderr).toMatch(/^tidemark: \/nonexistent\/directory: no such file or directory\n.*\n? +at /mu);
  });
});

describe("append and fetch", () => {
  test("what goes in as lines comes out byte for byte, over two appends and from a file as from a pipe", async () => {
    await using directory = await temporaryDirectory();
    const first = Buffer.concat([Buffer.from("one\r\n\n\0\n"), Buffer.from([0xff, 0xfe, 0x0a, 0xc3, 0x28, 0x0a])]);
    const file = join(directory.path, "007"); // A name that is a number.
    await writeFile(file, "last");
    const args = ["--directory", join(directory.path, "data")];
    const piped = await runCommand(["append", "orders", ...args], { stdin: first });
    expect(piped).toMatchObject({ exitCode: 0, stderr: "" });
    expect(piped.stdout.toString("utf8")).toBe("5 records appended to orders-0, offsets 0 to 4\n");
    const filed = await runCommand(["append", "orders", "--file", file, ...args]);
    expect(filed.stdout.toString("utf8")).toBe("1 record appended to orders-0, offsets 5 to 5\n");
    const fetched = await runCommand(["fetch", "orders", ...args]);
    expect(fetched).toMatchObject({ exitCode: 0, stderr: "" });
    expect(fetched.stdout.equals(Buffer.concat([first, Buffer.from("last\n")]))).toBe(true);
  });

  test("lines of a pipe that stays open are appended at once, and Ctrl-C keeps them: exit code 130, no lock left", async () => {
    await using directory = await temporaryDirectory();
    const data = join(directory.path, "data");
    const command = startCommand(["append", "orders", "--directory", data], { stdin: "a\nb\n", keepStdin: true });
    await expect
      .poll(
        () =>
          stat(join(data, "log/orders-0/00000000000000000000.log")).then(
            ({ size }) => size,
            () => 0,
          ),
        {
          timeout: 20_000,
        },
      )
      .toBeGreaterThan(0);
    expect(oneLineOf(await runCommand(["fetch", "orders", "--directory", data]))).toContain(
      "in use by another process",
    );
    command.child.kill("SIGINT");
    expect(await command.done).toMatchObject({ exitCode: 130, stderr: "" });
    expect((await runCommand(["fetch", "orders", "--directory", data])).stdout.toString("utf8")).toBe("a\nb\n");
  });

  test("--follow shows what is there, waits, and ends with Ctrl-C", async () => {
    await using directory = await temporaryDirectory();
    const args = ["orders", "--directory", directory.path];
    await runCommand(["append", ...args], { stdin: "a\nb\n" });
    const command = startCommand(["fetch", ...args, "--follow"]);
    await command.waitFor(/a\nb\n/u);
    expect(oneLineOf(await runCommand(["append", ...args], { stdin: "c\n" }))).toContain("in use"); // It still runs.
    command.child.kill("SIGINT");
    expect(await command.done).toMatchObject({ exitCode: 130, stderr: "" });
  });

  test("a reader that goes away ends a fetch quietly", async () => {
    await using directory = await temporaryDirectory();
    const args = ["orders", "--directory", directory.path];
    await runCommand(["append", ...args], { stdin: "a line of some length\n".repeat(200_000) });
    const command = startCommand(["fetch", ...args]);
    await command.waitFor(/a line/u);
    command.child.stdout?.destroy();
    expect(await command.done).toMatchObject({ exitCode: 0, stderr: "" });
    expect((await runCommand(["verify", directory.path])).exitCode).toBe(0);
  });

  test("a full standard output is told", async () => {
    await using directory = await temporaryDirectory();
    const args = ["orders", "--directory", directory.path];
    await runCommand(["append", ...args], { stdin: "a\n" });
    const full = await open("/dev/full", "w");
    try {
      const result = await runCommand(["fetch", ...args], { stdout: full.fd });
      expect(oneLineOf(result)).toContain("cannot write to standard output: no space left on the device");
    } finally {
      await full.close();
    }
  });
});

describe("a directory without rights", () => {
  test("one line, nothing touched", async () => {
    await using directory = await temporaryDirectory();
    const data = join(directory.path, "data");
    await runCommand(["append", "orders", "--directory", data], { stdin: "a\n" });
    await chmod(directory.path, 0o555);
    const before = await snapshot(data);
    const options = { uid: UNPRIVILEGED_UID, stdin: "b\n" };
    if (UNPRIVILEGED_UID === undefined) for (const name of [data, join(data, "log")]) await chmod(name, 0o555);
    for (const args of [
      ["append", "orders", "--directory", join(directory.path, "new")],
      ["demo", "--directory", join(directory.path, "new")],
      ...(UNPRIVILEGED_UID === undefined ? [] : [["append", "orders", "--directory", data]]),
    ]) {
      expect(oneLineOf(await runCommand(args, options)), String(args)).toContain("permission denied");
    }
    await chmod(directory.path, 0o755);
    if (UNPRIVILEGED_UID === undefined) for (const name of [data, join(data, "log")]) await chmod(name, 0o755);
    else expect(await snapshot(data)).toEqual(before);
  });
});

describe("verify and dump", () => {
  test("never write, need no right to, and work while the directory is in use", async () => {
    await using directory = await temporaryDirectory();
    const args = ["orders", "--directory", directory.path];
    await runCommand(["append", ...args], { stdin: "a\nb\n" });
    const partition = join(directory.path, "log/orders-0");
    const command = startCommand(["append", ...args], { stdin: "c\n", keepStdin: true });
    const segment = join(partition, "00000000000000000000.log");
    const sizeBefore = (await stat(segment)).size;
    await expect.poll(async () => (await stat(segment)).size, { timeout: 20_000 }).toBeGreaterThan(sizeBefore);
    const before = await snapshot(directory.path);
    const uid = UNPRIVILEGED_UID;
    for (const path of [directory.path, join(directory.path, "log"), partition]) {
      const verified = await runCommand(["verify", path], { uid });
      expect(verified, verified.stdout.toString("utf8")).toMatchObject({ exitCode: 0, stderr: "" });
      expect(verified.stdout.toString("utf8")).toMatch(/1 partition, 1 segment, 2 batches, 3 records/u);
    }
    const dumped = await runCommand(["dump", "--records", segment, join(partition, "leader-epoch-checkpoint")], {
      uid,
    });
    expect(dumped).toMatchObject({ exitCode: 0, stderr: "" });
    expect(dumped.stdout.toString("utf8")).toMatch(
      /payload: b\n.*\n.*payload: c\nDumping .*\nepoch: 0 startOffset: 0\n/u,
    );
    expect(await snapshot(directory.path)).toEqual(before);
    command.child.stdin?.end();
    expect((await command.done).exitCode).toBe(0);
  });

  test("a last byte that is gone after a clean close is found by both", async () => {
    await using directory = await temporaryDirectory();
    const stdin = "x".repeat(100_000);
    await runCommand(["append", "orders", "--directory", directory.path], { stdin });
    const segment = join(directory.path, "log/orders-0/00000000000000000000.log");
    const bytes = await readFile(segment);
    await writeFile(segment, bytes.subarray(0, bytes.length - 1));
    const torn = await runCommand(["verify", directory.path]);
    expect(torn.exitCode).toBe(1); // It was closed cleanly, so nothing may be missing.
    expect(torn.stdout.toString("utf8")).toContain("FAILED");
    expect((await runCommand(["dump", segment])).exitCode).toBe(1);
  });
});

describe("repair", () => {
  test("lists what is lost, refuses without --accept-loss and beside another process, and then makes the partition writable", async () => {
    await using directory = await temporaryDirectory();
    const data = join(directory.path, "data");
    const run = (...args: string[]) => runCommand([...args, "--directory", data]);
    for (const stdin of ["a\n", "b\n", "c\n"])
      expect((await runCommand(["append", "orders", "--directory", data], { stdin })).exitCode).toBe(0);
    expect((await runCommand(["repair", data])).stdout.toString("utf8")).toBe("OK: 1 partition, nothing to give up\n");
    const segment = join(data, "log/orders-0/00000000000000000000.log");
    const bytes = await readFile(segment);
    const secondBatch = 12 + bytes.readInt32BE(8);
    bytes[secondBatch + 8] = 0x7f; // Of its length.
    await writeFile(segment, bytes);

    const refused = await runCommand(["append", "orders", "--directory", data], { stdin: "d\n" });
    expect([refused.exitCode, oneLineOf(refused)]).toEqual([2, expect.stringContaining("damaged")]);
    const before = await snapshot(data);
    const listed = await runCommand(["repair", data]);
    expect(listed).toMatchObject({ exitCode: 1, stderr: "" });
    expect(listed.stdout.toString("utf8")).toContain(`orders-0: offset 1: ${segment}, bytes ${secondBatch} to`);
    expect(listed.stdout.toString("utf8")).toContain("1 offset of 1 partition cannot be read. Nothing was changed.");
    expect(await snapshot(data)).toEqual(before);

    const reader = startCommand(["fetch", "orders", "--directory", data, "--follow", "--from", "2"], {});
    await reader.waitFor(/c\n/u); // Only then does it hold the directory: a `repair` that runs first would turn it away.
    expect((await runCommand(["repair", data])).exitCode).toBe(2);
    expect(oneLineOf(await runCommand(["repair", "--accept-loss", data]))).toContain("another process");
    reader.child.kill("SIGKILL");
    await reader.done;

    const repaired = await runCommand(["repair", "--accept-loss", data]);
    expect(repaired).toMatchObject({ exitCode: 0, stderr: "" });
    expect(repaired.stdout.toString("utf8")).toMatch(
      /orders-0: offset 1: .*\nREPAIRED: 1 offset of 1 partition given up/u,
    );
    expect((await runCommand(["append", "orders", "--directory", data], { stdin: "d\n" })).exitCode).toBe(0);
    expect((await run("fetch", "orders")).stdout.toString("utf8")).toBe("a\nc\nd\n");
    expect((await run("offsets", "orders")).stdout.toString("utf8")).toBe("orders:0:4\n");
    expect((await runCommand(["verify", data])).exitCode).toBe(0);
  });

  test("bad input: one line, exit code 2", async () => {
    await using directory = await temporaryDirectory();
    const file = join(directory.path, "file");
    await writeFile(file, "");
    for (const [path, line] of [
      [join(directory.path, "nowhere"), "no such file or directory"],
      [file, "not a directory"],
      [directory.path, "not a directory of Tidemark.open"],
    ] as const) {
      const result = await runCommand(["repair", "--accept-loss", path]);
      expect([result.exitCode, oneLineOf(result)]).toEqual([2, expect.stringContaining(line)]);
    }
    expect((await runCommand(["repair"])).exitCode).toBe(2);
  });
});
