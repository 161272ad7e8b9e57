#!/usr/bin/env node
import { runCommandLine } from "./command-line.ts";

// A reader that has seen enough (`| head`) is no error. Others are told by whoever writes, or nobody could tell them.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit();
  if (process.stdout.listenerCount("error") === 1) throw error;
});

// Not process.exit: output that is still on its way to a pipe would be lost.
process.exitCode = await runCommandLine(process.argv.slice(2));
