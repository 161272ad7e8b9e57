import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import type { TestProject } from "vitest/node";

// Tests run the sources of every package; only those that start the command as users do build it first (BUILT).
const conditions = ["tidemark-source"];
const resolve = { conditions };
const ssr = {
  resolve: {
    conditions: [...conditions, "module", "node", "development|production"],
    externalConditions: [...conditions, "node"],
  },
};

/** Vitest passes over a project without a test file in silence; a folder moved or misspelt would look like success. */
const failWithoutTests = {
  name: "tidemark:fail-without-tests",
  async configureVitest({ project }: { project: TestProject }): Promise<void> {
    const { testFiles } = await project.globTestFiles();
    if (testFiles.length === 0) throw new Error(`The test project ${project.name} has no test file.`);
  },
};

/** For tests that start the command as users do. */
const BUILT = ["test/scenario/support/build.ts"];

/** One named group of tests: `npm test -- --project NAME`. Each test file runs in a process of its own. */
function project(name: string, include: string[], testTimeout = 20_000, globalSetup: string[] = []) {
  return {
    resolve,
    ssr,
    plugins: [failWithoutTests],
    test: { name, include, testTimeout, hookTimeout: testTimeout, pool: "forks" as const, isolate: true, globalSetup },
  };
}

/** Whether the command line names this project: `--project NAME` or `--project=NAME`. */
function isNamed(name: string): boolean {
  return process.argv.some(
    (argument, index) =>
      argument === `--project=${name}` || (argument === name && process.argv[index - 1] === "--project"),
  );
}

// These need more than Node: Java and Maven, several Node versions, or a browser. They are here only when somebody asks for them,
// so that `npm test` runs all the rest and `npm test -- --project unit` a part of it.
const apart = [
  project("interop", ["test/interop/**/*.test.ts"], 600_000, BUILT),
  project("package", ["test/package/**/*.test.ts"], 600_000),
  project("browser", ["test/browser/**/*.test.ts"], 120_000),
].filter(({ test }) => isNamed(test.name));

export default defineConfig({
  test: {
    // Vitest leaves one core free, which on two is half of them.
    maxWorkers: availableParallelism(),
    projects: [
      project("unit", ["packages/*/src/**/*.test.ts"]),
      project("contract", ["test/contract/**/*.test.ts"]),
      project("golden", ["test/golden/**/*.test.ts"]),
      project("fuzz", ["test/fuzz/**/*.test.ts"], 120_000),
      project("crash", ["test/crash/**/*.test.ts"], 600_000),
      project("scenario", ["test/scenario/**/*.test.ts"], 180_000, BUILT),
      project("simulation", ["test/simulation/**/*.test.ts"], 600_000),
      project("docs", ["test/docs/**/*.test.ts"], 60_000),
      ...apart,
    ],
  },
});
