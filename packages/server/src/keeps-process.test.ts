import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

test("a program that only waits for records stays, until it is told to stop", async () => {
  const directory = await mkdtemp(join(tmpdir(), "tidemark-waits-"));
  const program = `
    import { Tidemark } from ${JSON.stringify(new URL("./index.ts", import.meta.url).href)};
    const log = await Tidemark.open({ directory: ${JSON.stringify(directory)} });
    const topic = await log.topic("orders");
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error("told to stop")), 300).unref();
    try {
      for await (const record of topic.fetch({ partition: 0, signal: stop.signal })) console.log(record.offset);
    } catch (error) {
      console.log(error.message);
      await log.close();
    }
  `;
  try {
    const options = [
      "--import",
      import.meta.resolve("tsx"),
      "--conditions=tidemark-source",
      "--input-type=module",
      "--eval",
      program,
    ];
    const { stdout } = await promisify(execFile)(process.execPath, options, { cwd: import.meta.dirname });
    expect(stdout.trim()).toBe("told to stop");
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
