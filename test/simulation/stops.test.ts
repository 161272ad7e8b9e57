import { decodeUtf8 } from "@tidemark/base";
import { Cluster, liveContent } from "@tidemark/simulation";
import { describe, expect, test } from "vitest";

const CHECKPOINT = "log/replication-offset-checkpoint";

describe("a broker that is stopped as an operator does leaves its HW for whoever opens the directory next", () => {
  async function checkpointAfter(play: (cluster: Cluster) => Promise<void>): Promise<string> {
    const cluster = new Cluster({ seed: 1, minInsyncReplicas: 2 });
    return cluster.run(async () => {
      await cluster.startAll();
      await cluster.produce(1, ["a", "b", "c"]);
      await cluster.until("it is committed", () => cluster.partition(1).highWatermark === 3);
      for (const brokerId of [2, 3]) cluster.node(brokerId).manager?.pauseFetching();
      await cluster.wait(600);
      await cluster.produce(1, ["not committed"], { acks: 1 });
      // So long that it was noted.
      await cluster.wait(6000);
      await play(cluster);
      await cluster.shutDown(1);
      return decodeUtf8(liveContent(cluster.node(1).environment, CHECKPOINT));
    });
  }

  test("one that leads: not what only it has", async () => {
    expect(await checkpointAfter(() => Promise.resolve())).toBe("0\n1\norders 0 3\n");
  });

  test("one that was not told yet who leads: as it noted it last", async () => {
    const text = await checkpointAfter(async (cluster) => {
      await cluster.kill(1, { isTold: false });
      cluster.pauseController();
      await cluster.start(1);
      expect(cluster.node(1).partition).toBeUndefined();
      expect(cluster.node(1).log?.logEndOffset).toBe(4);
    });
    expect(text).toBe("0\n1\norders 0 3\n");
  });

  test("one that never noted any: nothing is committed", async () => {
    const cluster = new Cluster({ seed: 1, minInsyncReplicas: 2 });
    await cluster.run(async () => {
      await cluster.startAll();
      for (const brokerId of [2, 3]) cluster.node(brokerId).manager?.pauseFetching();
      await cluster.wait(600);
      await cluster.produce(1, ["not committed"], { acks: 1 });
      await cluster.kill(1, { isTold: false });
      cluster.pauseController();
      await cluster.start(1);
      await cluster.shutDown(1);
    });
    expect(decodeUtf8(liveContent(cluster.node(1).environment, CHECKPOINT))).toBe("0\n1\norders 0 0\n");
  });
});
