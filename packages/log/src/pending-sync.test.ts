import { expect, test } from "vitest";
import { PendingSync } from "./pending-sync.ts";

/** Syncs that end when they are told to. */
function begunSyncs(pending: PendingSync): {
  readonly run: () => Promise<string>;
  readonly ends: ((error?: Error) => void)[];
} {
  const ends: ((error?: Error) => void)[] = [];
  const sync = (): Promise<void> =>
    new Promise((resolve, reject) => {
      ends.push((error) => (error === undefined ? resolve() : reject(error)));
    });
  const run = (): Promise<string> =>
    pending.run(sync).then(
      () => "durable",
      (error: Error) => error.message,
    );
  return { run, ends };
}

async function isOver(promise: Promise<unknown>): Promise<boolean> {
  let over = false;
  void promise.then(() => (over = true));
  await new Promise(setImmediate);
  return over;
}

test("nothing is synced that is not dirty", async () => {
  const { run, ends } = begunSyncs(new PendingSync());
  expect([await run(), ends.length]).toEqual(["durable", 0]);
});

test("who comes while a sync is under way waits for it, though nothing is dirty any more", async () => {
  const pending = new PendingSync(true);
  const { run, ends } = begunSyncs(pending);
  const [first, second] = [run(), run()];
  expect([ends.length, pending.isDirty, await isOver(second)]).toEqual([1, false, false]);
  ends[0]?.();
  expect([await first, await second]).toEqual(["durable", "durable"]);
});

test("what became dirty meanwhile takes a sync of its own, and is durable only with the one before", async () => {
  const pending = new PendingSync(true);
  const { run, ends } = begunSyncs(pending);
  const first = run();
  pending.isDirty = true;
  const second = run();
  ends[1]?.();
  expect([ends.length, await isOver(second)]).toEqual([2, false]);
  ends[0]?.(new Error("lost"));
  expect([await first, await second]).toEqual(["lost", "lost"]);
});

test("a sync that failed fails all later ones, dirty or not", async () => {
  const pending = new PendingSync(true);
  const { run, ends } = begunSyncs(pending);
  const first = run();
  ends[0]?.(new Error("lost"));
  expect([await first, await run()]).toEqual(["lost", "lost"]);
  pending.isDirty = true;
  const later = run();
  ends[1]?.();
  expect(await later).toBe("lost");
});
