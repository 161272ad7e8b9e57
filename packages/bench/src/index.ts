export type { Machine, Report } from "./report.ts";
export type { Result, Unit } from "./workload.ts";
