import { expect, test } from "vitest";
import { Cluster } from "./cluster.ts";

test("three replicas take writes, and all of them hold the same", async () => {
  const cluster = new Cluster({ seed: 1 });
  await cluster.run(async () => {
    await cluster.startAll();
    const leader = cluster.leader() ?? 0;
    for (let at = 0; at < 20; at += 1) expect((await cluster.produce(leader, [`r${at}`])).error).toBe("NONE");
    await cluster.converged();
    const all = Array.from({ length: 20 }, (_, at) => `${at}:r${at}`);
    for (const brokerId of [1, 2, 3]) expect(await cluster.records(brokerId)).toEqual(all);
  });
});
