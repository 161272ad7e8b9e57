// The command line as a process, with a bug planted in the code: `node --import tsx --conditions=tidemark-source test/simulation/canary.ts M08
// simulate --seed 1`. `none` plants nothing.
import { mutantOf } from "@tidemark/simulator";
import { runCommandLine } from "../../packages/cli/src/command-line.ts";
import { withMutant } from "./mutated.ts";

const [id = "none", ...args] = process.argv.slice(2);
const run = (module: unknown): Promise<number> =>
  (module as { runCommandLine: typeof runCommandLine }).runCommandLine(args);
process.exitCode =
  id === "none" ? await runCommandLine(args) : await withMutant(mutantOf(id), "packages/cli/src/command-line.ts", run);
