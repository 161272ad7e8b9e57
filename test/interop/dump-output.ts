// What Kafka's dump tool says, read as a verdict: it ends with 0 whatever it finds.

const COMPLAINTS = /invalid|isvalid: false|corrupt|mismatch|error|exception|non[ -]consecutive|not found|found \d+/i;

/** The lines in which the tool does not like a file. */
export function complaintsIn(output: string): string[] {
  // The data of the records is arbitrary bytes and may read as anything.
  const lines = output.split("\n").map((line) => line.replace(/ (key|payload): .*$/, ""));
  return lines.filter((line) => COMPLAINTS.test(line));
}

/** The tool takes -1 for the offset before a file, and so finds a hole before every segment but 0. Kafka's own get it too. */
export function withoutFirstOffsets(stderr: string): string {
  return stderr.replaceAll(/Non-consecutive offsets in \S*\/0*([1-9]\d*)\.log\n +-1 is followed by \1\n/g, "");
}

/** @returns NaN when the line has no such field */
export function fieldOf(line: string, name: string): number {
  return Number(new RegExp(`\\b${name}: (-?\\d+)`).exec(line)?.[1]);
}
