// A process of `npm run crash:full`: explores the jobs that it is told, one after another.
import { exploreJob } from "./full-run.ts";
import type { JobName } from "./full-run.ts";

// Errors of opens are values here; a stack for each costs more than the open.
Error.stackTraceLimit = 0;

process.on("message", (name) => {
  void exploreJob(name as JobName).then((result) => process.send?.(result));
});
