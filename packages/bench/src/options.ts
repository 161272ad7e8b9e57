import { cac } from "cac";

export interface BenchOptions {
  readonly quick: boolean;
  readonly jsonPath: string | undefined;
  readonly htmlPath: string | undefined;
  /** Lower case. */
  readonly only: string | undefined;
  readonly rounds: number;
}

/** What the command line asks for. */
export type Invocation =
  | { readonly type: "run"; readonly options: BenchOptions }
  /** Was printed. */
  | { readonly type: "help" }
  | { readonly type: "wrong"; readonly reason: string };

const ROUNDS_DEFAULT = 7;
const ROUNDS_DEFAULT_QUICK = 1;
const ROUNDS_MAX = 1000;
const VALUE_OPTIONS = ["--json", "--html", "--only", "--rounds"];
/** Before a value: the parser below cac leaves what begins with it alone, and does not make a number of `007`. */
const MARK = "=";

/** Reads the arguments behind the script's name. `--help` is printed here, to standard output. */
export function parseOptions(args: readonly string[]): Invocation {
  const cli = cac("pnpm bench");
  const command = cli
    .command("", "Measure the engine, and peers beside it")
    .option("--quick", "Short samples and 1 round: whether it runs, not how fast")
    .option("--json <file>", "Also write the results as JSON")
    .option("--html <file>", "Also write a page with plots, which opens without a server")
    .option("--only <pattern>", "Workloads or subjects whose name contains this, upper or lower case")
    .option("--rounds <n>", `Rounds that count, 1 to ${ROUNDS_MAX} (default: ${ROUNDS_DEFAULT})`);
  cli.help();
  try {
    const { options, args: words } = cli.parse(["node", "bench", ...protectValues(args)], { run: false });
    if (options["help"] === true) return { type: "help" };
    command.checkUnknownOptions();
    command.checkOptionValue();
    if (words.length > 0) throw new UsageError(`unknown argument ${JSON.stringify(words[0])}`);
    return { type: "run", options: readOptions(options) };
  } catch (error) {
    if (error instanceof UsageError) return { type: "wrong", reason: error.message };
    if (error instanceof Error && error.name === "CACError") return { type: "wrong", reason: error.message };
    throw error;
  }
}

function readOptions(options: Readonly<Record<string, unknown>>): BenchOptions {
  const quick = options["quick"] === true;
  const only = textOf(options, "only")?.toLowerCase();
  const rounds = textOf(options, "rounds");
  return {
    quick,
    jsonPath: textOf(options, "json"),
    htmlPath: textOf(options, "html"),
    only,
    rounds: rounds === undefined ? (quick ? ROUNDS_DEFAULT_QUICK : ROUNDS_DEFAULT) : parseRounds(rounds),
  };
}

function parseRounds(text: string): number {
  const rounds = /^\d{1,4}$/u.test(text) ? Number(text) : 0;
  if (rounds >= 1 && rounds <= ROUNDS_MAX) return rounds;
  throw new UsageError(`--rounds is a whole number from 1 to ${ROUNDS_MAX}, not ${JSON.stringify(text)}`);
}

function textOf(options: Readonly<Record<string, unknown>>, name: string): string | undefined {
  const value = options[name];
  if (value === undefined) return undefined;
  if (Array.isArray(value)) throw new UsageError(`--${name} was given more than once`);
  const text = typeof value === "string" ? value.slice(MARK.length) : "";
  if (text === "") throw new UsageError(`--${name} needs a value`);
  return text;
}

/** Puts the mark before each value. A leading `--`, which `pnpm bench -- …` hands on, is dropped. */
function protectValues(args: readonly string[]): string[] {
  const rest = args[0] === "--" ? args.slice(1) : args;
  const result: string[] = [];
  for (let at = 0; at < rest.length; at += 1) {
    const argument = rest[at] ?? "";
    const [name = "", ...parts] = argument.split("=");
    if (!VALUE_OPTIONS.includes(name)) {
      result.push(argument === "--quick" ? "--quick=true" : argument); // Or a word after it would be its value.
      continue;
    }
    if (parts.length === 0) at += 1;
    const value = parts.length === 0 ? rest[at] : parts.join("=");
    if (value === undefined) throw new UsageError(`${name} needs a value`);
    result.push(`${name}=${MARK}${value}`);
  }
  return result;
}

/** A wrong command line. */
class UsageError extends Error {
  override readonly name = "UsageError";
}
