import { expect, test } from "vitest";
import { batchOf, LogFixture } from "./log.fixture.ts";

test("a batch that begins as an earlier one and ends elsewhere is no repetition of it", async () => {
  const log = await new LogFixture().open();
  const first = batchOf(["a", "b"], { id: 7, sequence: 0 });
  await log.append(first, { origin: "client" });
  for (const values of [["a"], ["a", "b", "c"]]) {
    const other = batchOf(values, { id: 7, sequence: 0 });
    await expect(log.append(other, { origin: "client" })).rejects.toMatchObject({
      code: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    });
  }
  expect(await log.append(first, { origin: "client" })).toEqual({ baseOffset: 0, lastOffset: 1, duplicate: true });
  expect(log.logEndOffset).toBe(2);
});
