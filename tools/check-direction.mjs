// Checks who may import whom: `node tools/check-direction.mjs [ROOT]`, exit 1 on a violation.
//
// base <- wire <- epoch-cache <- log <- replica, quorum <- server <- cli, console
// codecs, runtime-node and simulator implement base's ports; simulation runs clusters of the production code on the simulator;
// nothing imports bench or test; only tests, simulation and cli import simulator; only tests, cli and bench import simulation.
//
// Node's own modules and packages from npm are checked here too for the packages that hold no I/O, so that the direction
// does not depend on the linter alone.
import { existsSync, readdirSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { cruise } from "dependency-cruiser";

/** What the sources of a package may import, itself apart. A package that is not listed is an error. */
const ALLOWED = {
  base: [],
  wire: ["base"],
  codecs: ["base"],
  "epoch-cache": ["base", "wire"],
  log: ["base", "wire", "epoch-cache"],
  replica: ["base", "wire", "epoch-cache", "log"],
  quorum: ["base", "wire", "epoch-cache", "log"],
  "runtime-node": ["base", "wire", "codecs"],
  simulator: ["base", "wire", "codecs"],
  simulation: ["base", "wire", "epoch-cache", "log", "replica", "server", "simulator", "console"],
  server: ["base", "wire", "epoch-cache", "log", "replica", "quorum", "runtime-node"],
  cli: [
    "base",
    "wire",
    "epoch-cache",
    "log",
    "replica",
    "quorum",
    "runtime-node",
    "server",
    "simulator",
    "simulation",
    "console",
  ],
  console: ["base", "wire", "epoch-cache", "log", "replica", "quorum", "runtime-node", "server"],
  tidemark: ["base", "wire", "epoch-cache", "log", "replica", "quorum", "runtime-node", "server", "cli", "console"],
  bench: ["base", "wire", "epoch-cache", "log", "replica", "quorum", "runtime-node", "server", "simulation"],
};

/** Packages that hold no I/O, and what they may import from outside the workspace. */
const OUTSIDE = {
  base: [],
  wire: ["@node-rs/crc32", "protobufjs"],
  "epoch-cache": [],
  log: [],
  replica: [],
  quorum: [],
};

/** Tests, and what builds their arrangements, lie beside the sources and are no part of the package. */
const TEST_FILE = "[.](test|fixture)[.]ts$";

/** Anything of the workspace outside `packages`, as a path that dependency-cruiser reports. */
function packagePath(names) {
  return `^packages/(${names.join("|")})/`;
}

function rulesOfPackage(name, allowed) {
  const rules = [
    {
      name: `${name} may import ${allowed.length === 0 ? "no other package" : allowed.join(", ")}`,
      severity: "error",
      from: { path: `^packages/${name}/`, pathNot: TEST_FILE },
      to: { path: "^(packages|test|tools)/", pathNot: packagePath([name, ...allowed]) },
    },
    {
      // A test may look at the simulated disk and take the real codecs, and nothing else above its own package.
      name: `tests of ${name} may import ${[...allowed, "simulator", "codecs"].join(", ")}`,
      severity: "error",
      from: { path: `^packages/${name}/.*${TEST_FILE}` },
      to: { path: "^(packages|test|tools)/", pathNot: packagePath([name, "simulator", "codecs", ...allowed]) },
    },
  ];
  const outside = OUTSIDE[name];
  if (outside !== undefined) {
    const names = outside.map((module) => module.replace(/^node:/, ""));
    rules.push({
      name: `${name} may import ${outside.length === 0 ? "nothing" : outside.join(", ")} from outside the workspace`,
      severity: "error",
      from: { path: `^packages/${name}/`, pathNot: TEST_FILE },
      to: {
        pathNot: ["^packages/", "^[.]", ...names.flatMap((module) => [`^${module}$`, `/node_modules/${module}/`])],
      },
    });
  }
  return rules;
}

const forbidden = [
  ...Object.entries(ALLOWED).flatMap(([name, allowed]) => rulesOfPackage(name, allowed)),
  { name: "no import cycles", severity: "error", from: {}, to: { circular: true } },
  { name: "every import resolves", severity: "error", from: {}, to: { couldNotResolve: true } },
  {
    name: "a package is entered through its index",
    severity: "error",
    from: { path: "^packages/([^/]+)/" },
    to: { path: "^packages/([^/]+)/", pathNot: ["^packages/$1/", "^packages/[^/]+/src/index[.]ts$"] },
  },
  {
    name: "only tests import tests and fixtures",
    severity: "error",
    from: { pathNot: [TEST_FILE, "^test/"] },
    to: { path: TEST_FILE },
  },
  {
    name: "only bench imports bench",
    severity: "error",
    from: { pathNot: ["^packages/bench/", "^test/"] },
    to: { path: "^packages/bench/" },
  },
];

const root = resolve(process.argv[2] ?? fileURLToPath(new URL("..", import.meta.url)));
process.chdir(root);

const problems = [];
for (const name of readdirSync("packages")) {
  if (existsSync(`packages/${name}/package.json`) && ALLOWED[name] === undefined) {
    problems.push(`packages/${name} has no line in tools/check-direction.mjs: say what it may import`);
  }
}

const { output } = await cruise(
  ["packages", "test"],
  {
    validate: true,
    ruleSet: { forbidden },
    tsPreCompilationDeps: true,
    doNotFollow: { path: "node_modules" },
    exclude: { path: "/dist/" },
    moduleSystems: ["es6", "cjs"],
  },
  { conditionNames: ["tidemark-source", "import", "types", "default"], exportsFields: ["exports"] },
);
const sources = output.modules.filter((module) => /^packages[/].*[.]ts$/.test(module.source));
// The tool reads TypeScript through a compiler API that newer compilers lack; without it, it finds nothing and is content.
for (const name of Object.keys(ALLOWED)) {
  const present = existsSync(`packages/${name}/src`);
  if (present && !sources.some((module) => module.source.startsWith(`packages/${name}/src/`))) {
    problems.push(`no module of packages/${name} was read: nothing was checked`);
  }
}
if (sources.length === 0) problems.push("0 modules were read: nothing was checked");
for (const violation of output.summary.violations) {
  const cycle = (violation.cycle ?? []).map((step) => step.name).join(" -> ");
  problems.push(`${violation.rule.name}: ${violation.from} -> ${cycle === "" ? violation.to : cycle}`);
}

for (const problem of problems) console.error(problem);
console.log(`direction: ${sources.length} modules of ${output.modules.length}, ${problems.length} problems`);
if (problems.length > 0) process.exitCode = 1;
