import { describe, expect, test } from "vitest";

import { jsonArrayElements } from "./json-array.ts";

const elements = (json: string) =>
  new TextDecoder().decode(jsonArrayElements(new TextEncoder().encode(json), "f.json"));

describe("elements of a JSON array", () => {
  test("each element is kept as it is written, one a line", () => {
    expect(elements('[{"delay":0,"time":0.0},{"delay":171,"time":1e3}]')).toBe(
      '{"delay":0,"time":0.0}\n{"delay":171,"time":1e3}\n',
    );
  });

  test("commas, brackets and quotes inside strings and nested values end nothing", () => {
    expect(elements('[{"a":"},{\\"]\\\\"},[1,[2,3]],"x,y",4, null ]')).toBe(
      '{"a":"},{\\"]\\\\"}\n[1,[2,3]]\n"x,y"\n4\nnull\n',
    );
  });

  test("line breaks between tokens do not break a record", () => {
    expect(elements('[\n  {\n    "a": 1\n  },\r\n  2\n]\n')).toBe('{     "a": 1   }\n2\n');
  });

  test("an empty array has no elements", () => {
    expect(elements(" [ ] ")).toBe("");
  });

  test.each(["", "{}", "[1,2", '["a', "1", "]["])("%j is refused", (json) => {
    expect(() => elements(json)).toThrow("f.json: not a JSON array");
  });
});
