import { expect, test } from "vitest";
import { SimulatedEnvironment } from "./environment.ts";

test("commits take effect in the order of the calls, whatever their latencies", async () => {
  for (let seed = 0; seed < 10; seed++) {
    const { kernel, state } = new SimulatedEnvironment({ seed, mode: "kernel" });
    const seen: (number | undefined)[] = [];
    const commits = [1, 2, 3, 4].map((value) =>
      state
        .commit([{ key: "k", value: Uint8Array.of(value) }], { sync: value % 2 === 0 })
        .then(() => seen.push(state.get("k")?.[0])),
    );
    await kernel.run(() => Promise.all(commits));
    expect(seen).toEqual([1, 2, 3, 4]);
  }
});

test("a commit that fails changes nothing, and the next one goes through", async () => {
  const { files, state } = new SimulatedEnvironment({ seed: 0 });
  files.inject({ operation: "write", path: "state", code: "ENOSPC" });
  const puts = [{ key: "k", value: Uint8Array.of(1) }];
  await expect(state.commit(puts, { sync: false })).rejects.toMatchObject({ code: "ENOSPC" });
  expect(state.get("k")).toBeUndefined();
  await state.commit(puts, { sync: false });
  expect(state.keys("")).toEqual(["k"]);
});

test("close waits for commits in flight", async () => {
  const { kernel, state } = new SimulatedEnvironment({ seed: 1, mode: "kernel" });
  const seen: string[] = [];
  await kernel.run(async () => {
    void state.commit([], { sync: true }).then(() => seen.push("commit"));
    await state.close();
    seen.push("closed");
  });
  expect(seen).toEqual(["commit", "closed"]);
  await expect(state.commit([], { sync: false })).rejects.toMatchObject({ code: "EBADF" });
});
