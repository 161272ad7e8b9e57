import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/**
 * Brings what `npm start` runs up to date with the sources, once before all tests of a project. Hundreds of processes are started by
 * them, and one that has to compile the sources first takes three times as long to start.
 */
export default function setup(): void {
  const compiler = join(ROOT, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [compiler, "-b", "packages/cli"], {
    cwd: ROOT,
    stdio: ["ignore", "inherit", "inherit"],
  });
}
