import { CommandError } from "../errors.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN = new Set([0x5b, 0x7b]); // [ {
const CLOSE = new Set([0x5d, 0x7d]); // ] }
const NEWLINE = 0x0a;

/**
 * The elements of a JSON array, each exactly as it is written there (`0.0` stays `0.0`), one a line. Line breaks between tokens
 * become blanks; inside strings JSON has none.
 * @throws CommandError when the bytes are no JSON array
 */
export function jsonArrayElements(json: Uint8Array, path: string): Uint8Array {
  const result = new Uint8Array(json.length + 1); // Every element costs its bytes and one separator, as in the array.
  let resultBytes = 0;
  let depth = 0;
  let elementStart = -1;
  let inString = false;
  const endElement = (end: number) => {
    if (elementStart < 0) return;
    const element = json.subarray(elementStart, trimEnd(json, elementStart, end));
    result.set(element, resultBytes);
    for (let position = resultBytes; position < resultBytes + element.length; position += 1) {
      if (isBlank(result[position] ?? 0)) result[position] = 0x20;
    }
    resultBytes += element.length;
    result[resultBytes] = NEWLINE;
    resultBytes += 1;
    elementStart = -1;
  };
  for (let position = 0; position < json.length; position += 1) {
    const byte = json[position] ?? 0;
    if (inString) {
      if (byte === BACKSLASH) position += 1;
      else if (byte === QUOTE) inString = false;
      continue;
    }
    if (depth === 1 && (byte === COMMA || CLOSE.has(byte))) endElement(position);
    else if (depth === 1 && elementStart < 0 && !isBlank(byte)) elementStart = position;
    if (byte === QUOTE) inString = true;
    else if (OPEN.has(byte)) depth += 1;
    else if (CLOSE.has(byte)) depth -= 1;
    if (depth < 0) break;
  }
  if (depth !== 0 || inString || json[firstByte(json)] !== 0x5b) throw new CommandError(`${path}: not a JSON array`);
  return result.subarray(0, resultBytes);
}

function isBlank(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

function trimEnd(json: Uint8Array, start: number, end: number): number {
  let trimmed = end;
  while (trimmed > start && isBlank(json[trimmed - 1] ?? 0)) trimmed -= 1;
  return trimmed;
}

function firstByte(json: Uint8Array): number {
  let position = 0;
  while (position < json.length && isBlank(json[position] ?? 0)) position += 1;
  return position;
}
