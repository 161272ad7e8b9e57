import { toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { LogState } from "./log-state.ts";

test("borders behind the last segment that stays are forgotten: what is written there next has none", async () => {
  const { state } = new SimulatedEnvironment({ seed: 1 });
  const ours = new LogState(state, "orders", 1);
  const other = new LogState(state, "orders", 10);
  for (const log of [ours, other])
    for (const offset of [20, 30, 40]) await log.saveGapBefore(toOffset(offset), toOffset(offset - 5));
  await ours.noteTruncation({
    recoveryPoint: toOffset(15),
    offset: toOffset(15),
    lastBaseOffset: 20,
    leavesGap: false,
    seal: { endBaseOffset: 0, print: 0, stop: undefined },
  });
  expect([20, 30, 40].map((offset) => ours.endBeforeGap(toOffset(offset)))).toEqual([15, undefined, undefined]);
  expect([20, 30, 40].map((offset) => other.endBeforeGap(toOffset(offset)))).toEqual([15, 25, 35]);
  await other.forgetGapsAbove(30);
  expect([20, 30, 40].map((offset) => other.endBeforeGap(toOffset(offset)))).toEqual([15, 25, undefined]);
  expect([ours.recoveryPoint, other.recoveryPoint]).toEqual([15, undefined]);
});
