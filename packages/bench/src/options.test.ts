import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { parseOptions } from "./options.ts";

const printed: string[] = [];

beforeEach(() => {
  vi.spyOn(console, "info").mockImplementation((text: string) => void printed.push(text));
  vi.spyOn(console, "log").mockImplementation((text: string) => void printed.push(text));
});

afterEach(() => {
  vi.restoreAllMocks();
  printed.length = 0;
});

function reasonOf(...args: string[]): string {
  const invocation = parseOptions(args);
  if (invocation.type !== "wrong") throw new Error(`expected a refusal, got ${invocation.type}`);
  return invocation.reason;
}

test("no arguments mean everything, 7 rounds, no file", () => {
  const options = { quick: false, jsonPath: undefined, htmlPath: undefined, only: undefined, rounds: 7 };
  expect(parseOptions([])).toEqual({ type: "run", options });
});

test("--quick means 1 round unless --rounds says otherwise", () => {
  expect(parseOptions(["--quick"])).toMatchObject({ options: { quick: true, rounds: 1 } });
  expect(parseOptions(["--quick", "--rounds", "9"])).toMatchObject({ options: { quick: true, rounds: 9 } });
});

test("values are taken as they are: numbers as names, a leading hyphen, an equals sign, both spellings", () => {
  expect(parseOptions(["--json", "007", "--only", "-x"])).toMatchObject({ options: { jsonPath: "007", only: "-x" } });
  expect(parseOptions(["--html", "-5"])).toMatchObject({ options: { htmlPath: "-5" } });
  expect(parseOptions(["--json=a=b", "--only=CRC"])).toMatchObject({ options: { jsonPath: "a=b", only: "crc" } });
});

test("a leading -- from the package manager is dropped", () => {
  expect(parseOptions(["--", "--rounds", "2"])).toMatchObject({ options: { rounds: 2 } });
});

test("an unknown option, a word, and a value that is missing, empty or given twice are refused", () => {
  expect(reasonOf("--fast")).toContain("--fast");
  expect(reasonOf("crc")).toContain('"crc"');
  expect(reasonOf("--quick", "crc")).toContain('"crc"');
  expect(reasonOf("--only")).toContain("--only needs a value");
  expect(reasonOf("--json=")).toContain("--json needs a value");
  expect(reasonOf("--json", "a", "--json", "b")).toContain("more than once");
});

test.each(["0", "1001", "-1", "1.5", "ten", "1e2", ""])("--rounds %j is refused", (text) => {
  expect(reasonOf(`--rounds=${text}`)).toContain("--rounds");
});

test("--help is printed and names every option", () => {
  expect(parseOptions(["--help"])).toEqual({ type: "help" });
  for (const name of ["--quick", "--json", "--html", "--only", "--rounds"]) expect(printed.join("\n")).toContain(name);
});
