export { runCommandLine } from "./command-line.ts";
export type { DemoReport, KillFigures, ReportInput, ThroughputFigures } from "./demo/report.ts";
export type { RecordsVerdict, SegmentFigures } from "./demo/verify-records.ts";
export type {
  ClusterDemoReport,
  ClusterThroughput,
  FailoverFigures,
  ReplicaFigures,
  TruncationFigures,
} from "./demo/cluster/cluster-report.ts";
