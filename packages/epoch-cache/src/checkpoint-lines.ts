import { encodeUtf8, fail, parseUtf8 } from "@tidemark/base";

// The text frame that all of Kafka's checkpoint files share:
//
//   0\n                  version
//   <line count>\n
//   <field> <field>\n    one line per entry
//
// Source: apache/kafka server-common/.../server/common/CheckpointFile.java

const VERSION = 0;
/** Java's `\s` within a line; wider Unicode blanks belong to the field. */
const BLANKS = /[ \t\v\f]+/;
/** What `Integer.parseInt` takes, in ASCII. */
const INTEGER = /^[+-]?[0-9]+$/;

/** A checkpoint file that cannot be understood. What to do (rebuild, take the directory offline) is the caller's choice. */
export class CheckpointError extends Error {
  override readonly name = "CheckpointError";
  readonly code = "CHECKPOINT_MALFORMED";
  readonly path: string;
  /** 1-based. */
  readonly line: number;
  readonly reason: string;

  constructor(
    facts: { readonly path: string; readonly line: number; readonly reason: string },
    options?: ErrorOptions,
  ) {
    super(`CHECKPOINT_MALFORMED: ${facts.path}:${facts.line}: ${facts.reason}`, options);
    this.path = facts.path;
    this.line = facts.line;
    this.reason = facts.reason;
  }
}

/** @throws InvariantError when a field is empty or holds a blank or line end: it would not read back */
export function encodeCheckpointLines(lines: readonly (readonly (string | number)[])[]): Uint8Array {
  const rows = lines.map((fields) => {
    const texts = fields.map(String);
    if (!texts.every((text) => /^\S+$/.test(text))) fail("a checkpoint field has no blanks", { fields });
    return `${texts.join(" ")}\n`;
  });
  return encodeUtf8(`${VERSION}\n${lines.length}\n${rows.join("")}`);
}

/**
 * The fields of every entry line, in file order. Accepts what Kafka accepts: an empty file or a lone version line (no
 * entries), runs of blanks, trailing blanks, CRLF, a missing last newline.
 * @throws CheckpointError for anything else
 */
export function decodeCheckpointLines(bytes: Uint8Array, path: string, fieldCount: number): string[][] {
  const text = parseUtf8(bytes);
  if (text === undefined) throw new CheckpointError({ path, line: 1, reason: "not UTF-8" });
  const lines = text.split(/\r\n|\n|\r/);
  if (lines.at(-1) === "") lines.pop(); // The end of the last line, not a line of its own.
  const [versionLine, countLine, ...entryLines] = lines;
  if (versionLine === undefined) return [];
  const version = parseInteger(versionLine, path, 1);
  if (version !== VERSION)
    throw new CheckpointError({ path, line: 1, reason: `version ${version}, expected ${VERSION}` });
  if (countLine === undefined) return [];
  const count = parseInteger(countLine, path, 2);
  const entries = entryLines.map((line, i) => splitFields(line, fieldCount, path, i + 3));
  if (entries.length !== count) {
    throw new CheckpointError({ path, line: 2, reason: `count ${count}, but ${entries.length} entries follow` });
  }
  return entries;
}

/**
 * An integer field as a number; the caller checks its range.
 * @throws CheckpointError when the text is not an integer
 */
export function parseInteger(text: string, path: string, line: number): number {
  if (!INTEGER.test(text))
    throw new CheckpointError({ path, line, reason: `${JSON.stringify(text)} is not an integer` });
  return Number(text) + 0; // "-0" would be a second zero.
}

function splitFields(line: string, fieldCount: number, path: string, lineNumber: number): string[] {
  const fields = line.split(BLANKS);
  if (fields.at(-1) === "") fields.pop(); // Trailing blanks pass, leading ones do not: so it is in Kafka.
  if (fields.length !== fieldCount || fields[0] === "") {
    throw new CheckpointError({
      path,
      line: lineNumber,
      reason: `expected ${fieldCount} fields in ${JSON.stringify(line)}`,
    });
  }
  return fields;
}
