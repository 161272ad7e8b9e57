export { allWorkloads } from "./all-workloads.ts";
export { InstalledPeers } from "./installed-peers.ts";
export { pageSection, renderReportPage } from "./report-page.ts";
export type { PageReport } from "./report-page.ts";
export type { Machine, Report } from "./report.ts";
export { TemporaryDirectories } from "./temporary-directories.ts";
export type { Latencies, Measured, Result, Skipped, Unit, Workload } from "./workload.ts";
