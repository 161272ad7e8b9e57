import { PassThrough, Writable } from "node:stream";

import { describe, expect, test } from "vitest";

import { Output } from "./output.ts";

/** A stream that takes one write at a time, when `next` is called. */
class SlowStream extends Writable {
  readonly written: string[] = [];
  #pending: ((error?: Error | null) => void) | undefined;

  constructor() {
    super({ highWaterMark: 1 });
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.written.push(chunk.toString());
    this.#pending = done;
  }

  next(error?: Error): void {
    const done = this.#pending;
    this.#pending = undefined;
    done?.(error ?? null);
  }
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("output with back-pressure", () => {
  test("flush waits until a slow reader has room, and writes keep their order", async () => {
    const stream = new SlowStream();
    const output = new Output(stream);
    let isFlushed = false;
    output.add(Buffer.from("a"));
    const first = (async () => {
      await output.flush();
      isFlushed = true;
    })();
    output.add(Buffer.from("b"));
    const second = output.flush();
    await turn();
    expect(isFlushed).toBe(false);
    stream.next();
    await first;
    await turn();
    stream.next();
    await second;
    expect(stream.written).toEqual(["a", "b"]);
  });

  test("flushSoon writes what was added in this turn, once", async () => {
    const stream = new PassThrough();
    const output = new Output(stream);
    output.add(Buffer.from("a"));
    output.flushSoon();
    output.add(Buffer.from("b"));
    output.flushSoon();
    await turn();
    await turn();
    expect(String(stream.read())).toBe("ab");
  });

  test("a reader that goes away ends it without an error, even while a write waits", async () => {
    const stream = new SlowStream();
    const output = new Output(stream);
    output.add(Buffer.from("a"));
    const flushed = output.flush();
    await turn();
    stream.next(Object.assign(new Error("write EPIPE"), { code: "EPIPE" }));
    await flushed;
    expect(output.isClosed).toBe(true);
    output.add(Buffer.from("b"));
    await output.end();
    expect(stream.written).toEqual(["a"]);
  });

  test("any other failure is told in one line", async () => {
    const stream = new SlowStream();
    const output = new Output(stream);
    output.add(Buffer.from("a"));
    const flushed = output.flush();
    await turn();
    stream.next(Object.assign(new Error("write ENOSPC"), { code: "ENOSPC" }));
    await expect(flushed).rejects.toThrow("cannot write to standard output: no space left on the device (ENOSPC)");
  });
});
