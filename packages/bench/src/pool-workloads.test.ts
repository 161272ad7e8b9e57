import { expect, test } from "vitest";
import { poolWorkloads } from "./pool-workloads.ts";

test("the tables of the worker pool name the sizes from which the engine uses it", () => {
  expect(poolWorkloads()[0]?.explanation).toMatch(
    /from \d+ KiB \(COMPRESS_IN_POOL_BYTES_MIN\).* from \d+ KiB \(DECOMPRESS_IN_POOL_BYTES_MIN\)/u,
  );
});
