import { describe, expect } from "vitest";
import type { State, StatePut } from "@tidemark/base";
import { decodeUtf8, encodeUtf8 } from "@tidemark/base";
import type { Fixture } from "./fixture.ts";
import { contractTest, expectSameBytes, patternBytes } from "./fixture.ts";

export interface StateFixture extends Fixture {
  /** Opens the fixture's one state: empty at first, and after a close with what was committed. The suite closes it. */
  open(): Promise<State>;
}

type MakeFixture = () => Promise<StateFixture>;

const NO_SYNC = { sync: false };
const SYNC = { sync: true };

/** The contract of `State`, in what holds without a crash. */
export function describeState(name: string, makeFixture: MakeFixture): void {
  describe(`State: ${name}`, () => {
    valueTests(makeFixture);
    orderTests(makeFixture);
    copyTests(makeFixture);
    keyTests(makeFixture);
    closeTests(makeFixture);
  });
}

/** A test with the state opened before and closed after it. */
function stateTest(makeFixture: MakeFixture, name: string, body: (state: State) => Promise<void>): void {
  contractTest(makeFixture, name, async (fixture) => {
    const state = await fixture.open();
    await body(state);
    await state.close();
  });
}

function put(key: string, text: string): StatePut {
  return { key, value: encodeUtf8(text) };
}

function remove(key: string): StatePut {
  return { key, value: undefined };
}

function getText(state: State, key: string): string | undefined {
  const value = state.get(key);
  return value === undefined ? undefined : decodeUtf8(value);
}

function valueTests(makeFixture: MakeFixture): void {
  for (const options of [NO_SYNC, SYNC]) {
    stateTest(makeFixture, `a resolved commit shows in get (sync: ${options.sync})`, async (state) => {
      expect(state.get("a")).toBeUndefined();
      await state.commit([put("a", "1"), put("b", "2")], options);
      expect(getText(state, "a")).toBe("1");
      expect(getText(state, "b")).toBe("2");
      expect(state.get("c")).toBeUndefined();
      await state.commit([put("a", "3")], options);
      expect(getText(state, "a")).toBe("3");
      expect(getText(state, "b")).toBe("2");
    });
  }

  stateTest(makeFixture, "undefined removes the key; removing an absent key is no error", async (state) => {
    await state.commit([put("a", "1"), put("b", "2")], NO_SYNC);
    await state.commit([remove("a"), remove("absent")], NO_SYNC);
    expect(state.get("a")).toBeUndefined();
    expect(state.keys("")).toEqual(["b"]);
    await state.commit([put("a", "again")], NO_SYNC);
    expect(getText(state, "a")).toBe("again");
  });

  stateTest(makeFixture, "an empty value is a value, an empty commit is a commit", async (state) => {
    await state.commit([{ key: "empty", value: new Uint8Array(0) }], NO_SYNC);
    await state.commit([], NO_SYNC);
    await state.commit([], SYNC);
    expect(state.get("empty")).toEqual(new Uint8Array(0));
    expect(state.keys("")).toEqual(["empty"]);
  });

  stateTest(makeFixture, "values keep every byte, from one byte to hundreds of thousands", async (state) => {
    const sizes = [1, 2, 1000, 4096, 5000, 300_000];
    await state.commit(
      sizes.map((size) => ({ key: `size-${size}`, value: patternBytes(size, size) })),
      NO_SYNC,
    );
    for (const size of sizes) {
      const value = state.get(`size-${size}`);
      expect(value?.constructor).toBe(Uint8Array);
      expectSameBytes(value ?? new Uint8Array(), patternBytes(size, size));
    }
  });
}

function orderTests(makeFixture: MakeFixture): void {
  stateTest(makeFixture, "inside one commit a later put of a key wins", async (state) => {
    await state.commit([put("a", "1"), put("a", "2"), put("b", "1"), remove("b"), remove("c"), put("c", "1")], NO_SYNC);
    expect(getText(state, "a")).toBe("2");
    expect(state.get("b")).toBeUndefined();
    expect(getText(state, "c")).toBe("1");
  });

  stateTest(makeFixture, "commits take effect in the order of the calls, synced or not", async (state) => {
    const commits = Array.from({ length: 60 }, (_, index) =>
      state.commit([put("last", String(index)), put(`key-${index}`, "x")], { sync: index % 7 === 0 }),
    );
    await Promise.all(commits);
    expect(getText(state, "last")).toBe("59");
    expect(state.keys("key-")).toHaveLength(60);
  });

  stateTest(makeFixture, "a remove after a put, and a put after a remove, called without waiting", async (state) => {
    await Promise.all([state.commit([put("a", "1")], SYNC), state.commit([remove("a")], NO_SYNC)]);
    expect(state.get("a")).toBeUndefined();
    await Promise.all([state.commit([remove("a")], SYNC), state.commit([put("a", "2")], NO_SYNC)]);
    expect(getText(state, "a")).toBe("2");
  });

  stateTest(
    makeFixture,
    "a commit shows whole: two keys of one commit never differ, and never go back",
    async (state) => {
      let last = -1;
      const commits = Array.from({ length: 40 }, async (_, index) => {
        await state.commit([put("left", String(index)), put("right", String(index))], { sync: index % 5 === 0 });
        expect(getText(state, "left")).toBe(getText(state, "right"));
        const seen = Number(getText(state, "left"));
        expect(seen).toBeGreaterThanOrEqual(Math.max(index, last));
        last = seen;
      });
      await Promise.all(commits);
      expect(last).toBe(39);
    },
  );
}

function copyTests(makeFixture: MakeFixture): void {
  stateTest(makeFixture, "memory given to commit may be changed at once", async (state) => {
    for (const size of [8, 100_000]) {
      const value = patternBytes(size);
      const puts = [{ key: "a", value }];
      const committed = state.commit(puts, NO_SYNC);
      value.fill(0);
      puts.length = 0;
      await committed;
      expectSameBytes(state.get("a") ?? new Uint8Array(), patternBytes(size));
    }
  });

  stateTest(makeFixture, "a view is stored without what lies around it", async (state) => {
    await state.commit([{ key: "a", value: encodeUtf8("--inside--").subarray(2, 8) }], NO_SYNC);
    expect(getText(state, "a")).toBe("inside");
  });

  stateTest(makeFixture, "what get gave is the caller's own", async (state) => {
    await state.commit([put("a", "value")], NO_SYNC);
    const first = state.get("a");
    first?.fill(0);
    expect(getText(state, "a")).toBe("value");
    const kept = state.get("a");
    await state.commit([put("a", "other")], NO_SYNC);
    await state.commit([put("b", "more")], NO_SYNC);
    expect(getText(state, "b")).toBe("more");
    expect(decodeUtf8(kept ?? new Uint8Array())).toBe("value");
  });
}

function keyTests(makeFixture: MakeFixture): void {
  stateTest(makeFixture, "keys gives those that begin with the prefix, and no others", async (state) => {
    const names = [
      "high-watermark/a-0",
      "high-watermark/a-1",
      "high-watermark/a-10",
      "high-watermark/b-0",
      "high-watermar",
      "log-start/a-0",
    ];
    await state.commit(
      names.map((name) => put(name, "x")),
      NO_SYNC,
    );
    expect(state.keys("high-watermark/a-1")).toEqual(["high-watermark/a-1", "high-watermark/a-10"]);
    expect(state.keys("high-watermark/")).toEqual([
      "high-watermark/a-0",
      "high-watermark/a-1",
      "high-watermark/a-10",
      "high-watermark/b-0",
    ]);
    expect(state.keys("")).toEqual([...names].sort());
    expect(state.keys("none")).toEqual([]);
  });

  stateTest(
    makeFixture,
    "keys ascend by UTF-16 code units, not by code points; any character may be in a key",
    async (state) => {
      const names = [
        "a",
        "a\0",
        "a\0b",
        "aa",
        "a\u{1f600}",
        "a\uff5e",
        "a\uffff",
        "B",
        "é",
        "e\u0301",
        "k".repeat(300),
      ];
      await state.commit(
        names.map((name) => put(name, name)),
        NO_SYNC,
      );
      expect(state.keys("")).toEqual([...names].sort());
      expect(state.keys("a")).toEqual(["a", "a\0", "a\0b", "aa", "a\u{1f600}", "a\uff5e", "a\uffff"]);
      expect(state.keys("a\uffff")).toEqual(["a\uffff"]);
      expect(state.keys("a\ud83d")).toEqual(["a\u{1f600}"]);
      for (const name of names) expect(getText(state, name)).toBe(name);
    },
  );

  stateTest(makeFixture, "two thousand keys in one commit", async (state) => {
    const names = Array.from({ length: 2000 }, (_, index) => `recovery-point/topic-${index}`);
    await state.commit(
      names.map((name) => put(name, name)),
      NO_SYNC,
    );
    expect(state.keys("recovery-point/")).toEqual([...names].sort());
    expect(names.every((name) => getText(state, name) === name)).toBe(true);
  });
}

function closeTests(makeFixture: MakeFixture): void {
  contractTest(
    makeFixture,
    "what was committed is there when opened again; close waits for commits in flight",
    async (fixture) => {
      const first = await fixture.open();
      await first.commit([put("a", "1"), put("b", "2")], SYNC);
      const inFlight = [
        first.commit([put("c", "3")], NO_SYNC),
        first.commit([remove("b")], SYNC),
        first.commit([put("d", "4")], NO_SYNC),
      ];
      await first.close();
      await Promise.all(inFlight);
      const second = await fixture.open();
      expect(second.keys("")).toEqual(["a", "c", "d"]);
      expect(getText(second, "d")).toBe("4");
      await second.close();
    },
  );

  contractTest(makeFixture, "close may be called twice; later calls are refused", async (fixture) => {
    const state = await fixture.open();
    await state.commit([put("a", "1")], NO_SYNC);
    await Promise.all([state.close(), state.close()]);
    await state.close();
    expect(() => state.get("a")).toThrow(Error);
    expect(() => state.keys("")).toThrow(Error);
    const refused = await Promise.resolve()
      .then(() => state.commit([put("a", "2")], NO_SYNC))
      .then(
        () => false,
        () => true,
      );
    expect(refused).toBe(true);
    const again = await fixture.open();
    expect(getText(again, "a")).toBe("1");
    await again.close();
  });
}
