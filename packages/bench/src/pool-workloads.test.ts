import { expect, test } from "vitest";
import { poolWorkloads } from "./pool-workloads.ts";

test("there is a table for each codec each way, which names the size from which the engine uses the pool, and one for a CRC alone", () => {
  const tables = poolWorkloads().map(({ name, explanation }) => [name, /from \d+ KiB/u.test(explanation)]);
  expect(tables).toEqual([
    ...["gzip", "snappy", "lz4", "zstd"].flatMap((codec) => [
      [`${codec} compress, inline or pool`, true],
      [`${codec} decompress, inline or pool`, true],
    ]),
    ["crc32c, inline or pool", false],
  ]);
});
