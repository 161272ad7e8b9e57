import { DEFAULT_LOG_CONFIG } from "@tidemark/log";
import { DEFAULT_REPLICA_MANAGER_CONFIG } from "./replica-manager.ts";
import { expect, test } from "vitest";
import { managerConfigOf } from "./broker-node.ts";

test("high watermarks count flushed ends exactly where appends wait for the disk, whatever else is said of replicas", () => {
  const { replica } = DEFAULT_REPLICA_MANAGER_CONFIG;
  for (const config of [undefined, { replica: { ...replica, minInsyncReplicas: 1 } }]) {
    for (const flush of ["none", "always"] as const) {
      const topicConfig = { ...DEFAULT_LOG_CONFIG, compression: "none", flush } as const;
      const made = managerConfigOf(config === undefined ? { topicConfig } : { topicConfig, config });
      expect(made).toEqual({
        ...DEFAULT_REPLICA_MANAGER_CONFIG,
        replica: { ...(config?.replica ?? replica), countsFlushedEnds: flush === "always" },
      });
    }
  }
});
