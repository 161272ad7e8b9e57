// Makes the one package that users install: `node tools/pack-tidemark.mjs OUT_DIR` writes OUT_DIR/tidemark-VERSION.tgz
// from the built `dist` folders (run `tsc -b` first) and prints its path.
//
// The package holds `dist/<package>/` and `src/<package>/` of every file that its entries reach, with imports of
// `@tidemark/x` rewritten to relative paths, and the external dependencies of the packages so reached, at the exact
// versions of the catalog. There is no bundler: file names, stack traces and source maps stay those of the repository.
// An import of anything that the package does not bring or declare stops the script.
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { isBuiltin } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join, posix, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SCOPE = "@tidemark/";

/**
 * Public entries, as `<package>/<file below src, without its extension>`. All else is reached from these.
 * A partition log alone needs an environment to run on (runtime-node) and batches to append (wire), in base's types.
 */
const EXPORTS = {
  ".": "tidemark/index",
  "./log": "log/index",
  "./epoch-cache": "epoch-cache/index",
  "./wire": "wire/index",
  "./runtime-node": "runtime-node/index",
  "./base": "base/index",
};
const COMMAND = "cli/main";

/** Statements stand at the start of a line in the output of tsc; examples in comments do not. */
const STATEMENT = /^(?:import|export)\b(?:[^;"'`]*?\bfrom)?\s*"([^"\n]+)"/gm;
/** Dynamic imports, and types in declarations. Comments are left out by `isInComment`. */
const INLINE = /\bimport\("([^"\n]+)"\)/g;
/** A file named at run time, such as a worker: `new URL("./worker.js", import.meta.url)`. */
const FILE_NAME = /"(\.{1,2}\/[^"\n]+)\.js"/g;

const manifests = new Map();
const modules = new Map();
const assets = new Set();
const dependencies = new Map();
const optionalDependencies = new Map();

const outDirectory = process.argv[2];
const stage = mkdtempSync(join(tmpdir(), "tidemark-pack-"));
try {
  if (outDirectory === undefined || process.argv.length !== 3) stop("usage: node tools/pack-tidemark.mjs OUT_DIR");
  for (const entry of [...Object.values(EXPORTS), COMMAND]) reach(entry, "the package's entries");
  for (const folder of new Set([...modules.keys()].map((id) => folderOf(id)))) collectDependencies(folder);
  for (const id of modules.keys()) stageModule(id);
  for (const id of assets) stageCopy(outputOf(id, ".js"), join(stage, `dist/${id}.js`));
  stageManifest();
  for (const name of ["README.md", "LICENSE"]) stageCopy(join(ROOT, name), join(stage, name));
  console.log(pack());
} catch (error) {
  console.error(`pack-tidemark: ${error.message}`);
  process.exitCode = 1;
} finally {
  rmSync(stage, { recursive: true, force: true });
}

function stop(message) {
  throw new Error(message);
}

/** Follows the imports of a module and of its declarations, across packages. */
function reach(id, importer) {
  if (modules.has(id)) return;
  const files = [".js", ".d.ts"].map((extension) => ({ extension, path: outputOf(id, extension) }));
  if (sourceOf(id) === undefined) stop(`${importer} needs ${id}, which has no source`);
  if (/[.](?:test|fixture)$/.test(id)) stop(`${importer} imports ${id}, which is there for tests`);
  for (const { path } of files) {
    if (!existsSync(path)) stop(`${path} is missing: run npm run build`);
  }
  modules.set(id, files);
  for (const { extension, path } of files) {
    const text = readFileSync(path, "utf8");
    for (const [, specifier] of findSpecifiers(text)) {
      const target = resolveSpecifier(id, specifier);
      if (target !== undefined) reach(target, path);
    }
    if (extension === ".d.ts") continue;
    for (const match of text.matchAll(FILE_NAME)) {
      const named = posix.join(posix.dirname(id), match[1]);
      if (folderOf(named) !== folderOf(id)) continue;
      if (sourceOf(named) !== undefined) reach(named, path);
      // Read at run time, and no part of the program: a script of a page.
      else if (existsSync(outputOf(named, ".js"))) assets.add(named);
    }
  }
}

/** The module that a specifier means, or undefined for one that npm or Node brings. Anything else stops the script. */
function resolveSpecifier(id, specifier) {
  if (specifier.startsWith(".")) {
    const target = posix.join(posix.dirname(id), specifier.replace(/[.][jt]s$/, ""));
    if (folderOf(target) !== folderOf(id)) stop(`${id} imports ${specifier}, which lies outside its package`);
    return target;
  }
  const manifest = manifestOf(folderOf(id));
  const name = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
  if (isBuiltin(specifier)) return undefined;
  if (manifest.dependencies?.[name] === undefined && manifest.optionalDependencies?.[name] === undefined) {
    stop(`${id} imports ${specifier}, which is no dependency of ${manifest.name}`);
  }
  if (!specifier.startsWith(SCOPE)) return undefined;
  if (specifier !== name) stop(`${id} imports ${specifier}: a package of this repository is entered through its index`);
  return `${name.slice(SCOPE.length)}/index`;
}

/** Position and text of every specifier of a module, in order. */
function findSpecifiers(text) {
  const found = new Map();
  for (const pattern of [STATEMENT, INLINE]) {
    for (const match of text.matchAll(pattern)) {
      if (pattern === INLINE && isInComment(text, match.index)) continue;
      found.set(match.index + match[0].lastIndexOf(match[1]), match[1]);
    }
  }
  return [...found].toSorted(([left], [right]) => left - right);
}

function isInComment(text, position) {
  const line = text.slice(text.lastIndexOf("\n", position) + 1, position);
  return /^\s*(?:\*|\/\*)|(?:^|\s)\/\/\s/.test(line);
}

/** Writes the output and the source of a module, with specifiers and source maps that are right in the package. */
function stageModule(id) {
  const source = sourceOf(id);
  stageCopy(source, join(stage, stagedSource(id)));
  for (const { extension, path } of modules.get(id)) {
    let text = readFileSync(path, "utf8");
    for (const [position, specifier] of findSpecifiers(text).toReversed()) {
      const target = resolveSpecifier(id, specifier);
      if (target === undefined) continue;
      const relative = posix.relative(posix.dirname(id), `${target}.js`);
      text =
        text.slice(0, position) +
        (relative.startsWith(".") ? relative : `./${relative}`) +
        text.slice(position + specifier.length);
    }
    const staged = `dist/${id}${extension}`;
    stageText(staged, text);
    const map = JSON.parse(readFileSync(`${path}.map`, "utf8"));
    const mapped = map.sources.map((name) => resolve(dirname(path), map.sourceRoot ?? "", name));
    if (mapped.length !== 1 || mapped[0] !== source)
      stop(`${path}.map tells of ${mapped.join(", ")}, not of ${source}`);
    delete map.sourceRoot;
    map.sources = [posix.relative(posix.dirname(staged), stagedSource(id))];
    stageText(`${staged}.map`, JSON.stringify(map));
  }
}

/** Adds what a package declares from outside the workspace; also what only its run time asks for by name. */
function collectDependencies(folder) {
  const manifest = manifestOf(folder);
  for (const [field, collected] of [
    ["dependencies", dependencies],
    ["optionalDependencies", optionalDependencies],
  ]) {
    for (const [name, wanted] of Object.entries(manifest[field] ?? {})) {
      if (wanted.startsWith("workspace:")) continue;
      const version = wanted === "catalog:" ? catalog().get(name) : wanted;
      if (version === undefined || !/^\d+[.]\d+[.]\d+(?:-[\w.]+)?$/.test(version)) {
        stop(`${manifest.name} wants ${name} ${version ?? wanted}, which is not one exact version`);
      }
      collected.set(name, version);
    }
  }
}

function stageManifest() {
  const { version } = manifestOf("tidemark");
  const root = readJson(join(ROOT, "package.json"));
  for (const name of dependencies.keys()) optionalDependencies.delete(name);
  const manifest = {
    name: "tidemark",
    version,
    description: root.description,
    keywords: ["kafka", "log", "append-only", "replication", "storage", "embedded"],
    license: root.license,
    type: "module",
    sideEffects: [`./dist/${COMMAND}.js`, ...[...modules.keys()].filter(isWorker).map((id) => `./dist/${id}.js`)],
    engines: root.engines,
    files: ["dist", "src"],
    bin: { tidemark: `dist/${COMMAND}.js` },
    exports: {
      ...Object.fromEntries(
        Object.entries(EXPORTS).map(([door, id]) => [door, { types: `./dist/${id}.d.ts`, default: `./dist/${id}.js` }]),
      ),
      "./package.json": "./package.json",
    },
    dependencies: sorted(dependencies),
    ...(optionalDependencies.size === 0 ? {} : { optionalDependencies: sorted(optionalDependencies) }),
  };
  stageText("package.json", `${JSON.stringify(manifest, null, 2)}\n`);
  if (!readFileSync(join(stage, `dist/${COMMAND}.js`), "utf8").startsWith("#!/usr/bin/env node\n")) {
    stop(`${COMMAND} does not start with #!/usr/bin/env node`);
  }
}

/** Hands the staged folder to npm and puts the tarball in its place. */
function pack() {
  const out = resolve(outDirectory);
  mkdirSync(out, { recursive: true });
  const listed = execFileSync("npm", ["pack", stage, "--ignore-scripts", "--json", "--pack-destination", out], {
    cwd: stage,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [{ filename, files }] = JSON.parse(listed);
  const wrong = files.find(({ path }) => /[.](?:test|fixture)[.]|tsbuildinfo|node_modules/.test(path));
  if (wrong !== undefined) stop(`${wrong.path} may not be in the package`);
  return join(out, filename);
}

function stageText(path, text) {
  const full = join(stage, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text);
}

function stageCopy(from, to) {
  if (!existsSync(from)) stop(`${from} is missing`);
  mkdirSync(dirname(to), { recursive: true });
  copyFileSync(from, to);
}

/** Source file of a module, or undefined. */
function sourceOf(id) {
  const path = join(ROOT, "packages", folderOf(id), "src", `${id.slice(folderOf(id).length + 1)}.ts`);
  return existsSync(path) && statSync(path).isFile() ? path : undefined;
}

function outputOf(id, extension) {
  return join(ROOT, "packages", folderOf(id), "dist", `${id.slice(folderOf(id).length + 1)}${extension}`);
}

function stagedSource(id) {
  return `src/${id}.ts`;
}

function isWorker(id) {
  return basename(id) === "worker";
}

/** Directory below `packages/` that a module lies in. */
function folderOf(id) {
  return id.split("/", 1)[0];
}

function manifestOf(folder) {
  if (!manifests.has(folder)) {
    const path = join(ROOT, "packages", folder, "package.json");
    if (!existsSync(path)) stop(`packages/${folder} is no package`);
    manifests.set(folder, readJson(path));
  }
  return manifests.get(folder);
}

/** The `catalog:` block of pnpm-workspace.yaml: lines `  name: version`, the name maybe in quotes. */
function catalog() {
  const versions = new Map();
  let inside = false;
  for (const line of readFileSync(join(ROOT, "pnpm-workspace.yaml"), "utf8").split("\n")) {
    if (/^\S/.test(line)) inside = line.trim() === "catalog:";
    const entry = /^ {2}"?([^":\s]+)"?: (\S+)$/.exec(line);
    if (inside && entry !== null) versions.set(entry[1], entry[2]);
  }
  return versions;
}

function readJson(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}

function sorted(map) {
  return Object.fromEntries([...map].toSorted(([left], [right]) => (left < right ? -1 : 1)));
}
