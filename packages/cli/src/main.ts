#!/usr/bin/env node
import { runCommandLine } from "./command-line.ts";

// Not process.exit: output that is still on its way to a pipe would be lost.
process.exitCode = await runCommandLine(process.argv.slice(2));
