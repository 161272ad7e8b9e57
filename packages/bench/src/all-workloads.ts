import { appendWorkloads } from "./append-workloads.ts";
import { codecWorkloads } from "./codec-workloads.ts";
import { compactionWorkloads } from "./compaction-workloads.ts";
import { clusterWorkloads } from "./cluster-workload.ts";
import { memoryWorkloads } from "./memory-workload.ts";
import { MICRO_WORKLOADS } from "./micro-workloads.ts";
import { openWorkloads } from "./open-workloads.ts";
import { poolWorkloads } from "./pool-workloads.ts";
import { readWorkloads } from "./read-workloads.ts";
import { simulationWorkloads } from "./simulation-workload.ts";
import { tailingWorkloads } from "./tailing-workloads.ts";
import type { Workload } from "./workload.ts";

/** Everything that is measured, in the order of the report. A workload of another part of the engine gets its line here. */
export function allWorkloads(): readonly Workload[] {
  return [
    ...MICRO_WORKLOADS,
    ...poolWorkloads(),
    ...appendWorkloads(),
    ...readWorkloads(),
    ...codecWorkloads(),
    ...tailingWorkloads(),
    ...openWorkloads(),
    ...compactionWorkloads(),
    ...memoryWorkloads(),
    ...clusterWorkloads(),
    ...simulationWorkloads(),
  ];
}
