import type { CAC } from "cac";

import { CommandError } from "./errors.ts";

/** Marks a protected value. Not a digit, so the parser below cac leaves the string alone. */
const MARK = "=";

/**
 * Rewrites `--name value` and `--name=value` as one argument whose value begins with a mark, for every option that takes a
 * value. The parser of cac would otherwise turn `007` into 7 and an empty value into 0, and would not take a value that
 * begins with `-`; `textOption` removes the mark. A flag becomes `--name=true`, or it would turn a number after it into
 * something else. A leading `--`, which `pnpm start -- …` hands on, is dropped.
 * @throws CommandError when an option that takes a value is the last argument
 */
export function protectValues(args: readonly string[], cli: CAC): string[] {
  const { values, flags } = optionNames(cli);
  const result: string[] = [];
  const rest = args[0] === "--" ? args.slice(1) : [...args];
  for (let index = 0; index < rest.length; index += 1) {
    const argument = rest[index] ?? "";
    if (argument === "--") return [...result, ...rest.slice(index)];
    const equals = argument.indexOf("=");
    const name = equals < 0 ? argument : argument.slice(0, equals);
    if (flags.has(argument)) {
      result.push(`${argument}=true`);
    } else if (!values.has(name)) {
      result.push(argument);
    } else if (equals >= 0) {
      result.push(`${name}=${MARK}${argument.slice(equals + 1)}`);
    } else {
      index += 1;
      const value = rest[index];
      if (value === undefined) throw new CommandError(`option ${name} needs a value`);
      result.push(`${name}=${MARK}${value}`);
    }
  }
  return result;
}

/** `--directory` and so on: the options of all commands, by whether they take a value. */
function optionNames(cli: CAC): { readonly values: ReadonlySet<string>; readonly flags: ReadonlySet<string> } {
  const values = new Set<string>();
  const flags = new Set<string>();
  for (const option of cli.commands.flatMap((command) => command.options)) {
    const names = option.required === true ? values : flags;
    for (const part of (option.rawName.split(/[<[]/u)[0] ?? "").split(",")) names.add(part.trim());
  }
  return { values, flags };
}

/** Options as cac hands them over: values still carry their mark. */
export type RawOptions = Readonly<Record<string, unknown>>;

/** The value of an option that takes one, `undefined` when it was not given. */
export function textOption(options: RawOptions, name: string): string | undefined {
  const value = options[name];
  if (value === undefined) return undefined;
  if (Array.isArray(value)) throw new CommandError(`option ${flagOf(name)} was given more than once`);
  if (typeof value !== "string" || !value.startsWith(MARK))
    throw new CommandError(`option ${flagOf(name)} needs a value`);
  return value.slice(MARK.length);
}

/** Of a flag whose name has two words, cac makes no boolean. */
export function flagOption(options: RawOptions, name: string): boolean {
  return options[name] === true || options[name] === "true";
}

/** A whole number in [min, max]. */
export function integerOption(
  options: RawOptions,
  name: string,
  range: { readonly min: number; readonly max: number },
): number | undefined {
  const text = textOption(options, name);
  return text === undefined ? undefined : parseInteger(text, flagOf(name), range);
}

export function parseInteger(
  text: string,
  what: string,
  range: { readonly min: number; readonly max: number },
): number {
  const value = /^-?\d{1,16}$/u.test(text) ? Number(text) : Number.NaN;
  if (!(Number.isSafeInteger(value) && value >= range.min && value <= range.max)) {
    throw new CommandError(
      `${what} must be a whole number from ${range.min} to ${range.max}, not ${JSON.stringify(text)}`,
    );
  }
  return value;
}

function flagOf(name: string): string {
  return `--${name.replaceAll(/[A-Z]/gu, (letter) => `-${letter.toLowerCase()}`)}`;
}
