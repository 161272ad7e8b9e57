import { defineConfig } from "vitest/config";

// Tests run the sources of every package; nothing needs to be built for them.
const conditions = ["tidemark-source"];
const resolve = { conditions };
const ssr = {
  resolve: {
    conditions: [...conditions, "module", "node", "development|production"],
    externalConditions: [...conditions, "node"],
  },
};

/** One named group of tests: `vitest run --project NAME`. */
function project(name: string, include: string[], testTimeout = 20_000) {
  return { resolve, ssr, test: { name, include, testTimeout, hookTimeout: testTimeout } };
}

export default defineConfig({
  test: {
    projects: [
      project("unit", ["packages/*/src/**/*.test.ts"]),
      project("contract", ["test/contract/**/*.test.ts"]),
      project("golden", ["test/golden/**/*.test.ts"]),
      project("crash", ["test/crash/**/*.test.ts"], 300_000),
      project("scenario", ["test/scenario/**/*.test.ts"], 180_000),
      project("docs", ["test/docs/**/*.test.ts"], 60_000),
      project("interop", ["test/interop/**/*.test.ts"], 600_000),
      project("package", ["test/package/**/*.test.ts"], 600_000),
    ],
  },
});
