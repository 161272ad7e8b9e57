import { expect, test } from "vitest";
import { onAbort } from "./abort.ts";

test("everybody who waits on a signal is called once; who stopped waiting is not", () => {
  const controller = new AbortController();
  const calls: string[] = [];
  onAbort(controller.signal, () => calls.push("a"));
  const stop = onAbort(controller.signal, () => calls.push("b"));
  onAbort(controller.signal, () => calls.push("c"));
  stop();
  controller.abort();
  controller.abort();
  expect(calls).toEqual(["a", "c"]);
});

test("thousands who wait on one signal cost one listener, so that the system warns of no leak", async () => {
  const warnings: string[] = [];
  const listen = (warning: Error): number => warnings.push(warning.message);
  process.on("warning", listen);
  const { signal } = new AbortController();
  const stops = Array.from({ length: 5000 }, () => onAbort(signal, () => undefined));
  for (const stop of stops) stop();
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", listen);
  expect(warnings).toEqual([]);
});
