import { cac } from "cac";
import { describe, expect, test } from "vitest";

import { flagOption, integerOption, protectValues, textOption } from "./arguments.ts";
import { CommandError } from "./errors.ts";

/** Options and arguments as a command with one value option and one flag receives them. */
function parse(...args: string[]): { options: Record<string, unknown>; files: string[] } {
  const cli = cac("test");
  const command = cli.command("run [...files]").option("-i, --input-file <file>", "").option("--keep", "");
  let received: { options: Record<string, unknown>; files: string[] } | undefined;
  command.action((files: string[], options: Record<string, unknown>) => {
    received = { files, options };
  });
  cli.parse(["node", "test", ...protectValues(args, cli)]);
  if (received === undefined) throw new Error("no command ran");
  return received;
}

describe("option values", () => {
  test.each(["007", "1e3", "", "-", "-x", "--keep", "=", "a=b", "0x10", "true", "value with blanks"])(
    "%j arrives as it was typed",
    (value) => {
      expect(textOption(parse("run", "--input-file", value).options, "inputFile")).toBe(value);
      expect(textOption(parse("run", `--input-file=${value}`).options, "inputFile")).toBe(value);
      expect(textOption(parse("run", "-i", value).options, "inputFile")).toBe(value);
    },
  );

  test("an option that is not given is undefined, a flag is then false", () => {
    const { options } = parse("run");
    expect(textOption(options, "inputFile")).toBeUndefined();
    expect(flagOption(options, "keep")).toBe(false);
  });

  test("a flag leaves the arguments after it alone", () => {
    expect(parse("run", "--keep", "007", "8")).toMatchObject({ files: ["007", "8"], options: { keep: true } });
  });

  test("a leading -- is dropped", () => {
    expect(textOption(parse("--", "run", "--input-file", "x").options, "inputFile")).toBe("x");
  });

  test("a value that is missing, and an option given twice, are refused in one line", () => {
    expect(() => parse("run", "--input-file")).toThrow(new CommandError("option --input-file needs a value"));
    const { options } = parse("run", "--input-file", "a", "--input-file", "b");
    expect(() => textOption(options, "inputFile")).toThrow("option --input-file was given more than once");
  });

  test.each(["-1", "1.5", "1e3", "", " 1", "0x1", "9007199254740993", "11"])(
    "%j is no whole number up to 10",
    (text) => {
      const { options } = parse("run", "--input-file", text);
      expect(() => integerOption(options, "inputFile", { min: 0, max: 10 })).toThrow(
        /^--input-file must be a whole number/u,
      );
    },
  );

  test("whole numbers at both ends of the range pass", () => {
    const value = (text: string) => integerOption(parse("run", "-i", text).options, "inputFile", { min: 2, max: 10 });
    expect([value("2"), value("010")]).toEqual([2, 10]);
    expect(() => value("1")).toThrow(CommandError);
  });
});
