export { runCommandLine } from "./command-line.ts";
export type { DemoReport, KillFigures, ThroughputFigures } from "./demo/report.ts";
export type { RecordsVerdict, SegmentFigures } from "./demo/verify-records.ts";
