import { toOffset } from "@tidemark/base";
import { SimulatedEnvironment } from "@tidemark/simulator";
import { expect, test } from "vitest";
import { LogState } from "./log-state.ts";

test("borders at or above a lowered recovery point are forgotten: what is written there next has none", async () => {
  const { state } = new SimulatedEnvironment({ seed: 1 });
  const ours = new LogState(state, "orders", 1);
  const other = new LogState(state, "orders", 10);
  for (const log of [ours, other]) for (const offset of [20, 30, 40]) await log.saveGapBefore(toOffset(offset));
  await ours.lowerRecoveryPoint(toOffset(30));
  expect([20, 30, 40].map((offset) => ours.hasGapBefore(toOffset(offset)))).toEqual([true, false, false]);
  expect([20, 30, 40].map((offset) => other.hasGapBefore(toOffset(offset)))).toEqual([true, true, true]);
  expect([ours.recoveryPoint, other.recoveryPoint]).toEqual([30, undefined]);
});
