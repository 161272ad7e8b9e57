import { styleText } from "node:util";

import cliProgress from "cli-progress";

import { formatCount } from "./format.ts";

type Style = Parameters<typeof styleText>[0];

/** Whether colours belong on this stream: a terminal that was not asked to be plain (https://no-color.org). */
function hasColours(stream: NodeJS.WriteStream): boolean {
  return stream.isTTY && (process.env["NO_COLOR"] ?? "") === "" && process.env["TERM"] !== "dumb";
}

/** Text for standard output, in colour on a terminal only. */
export function styled(style: Style, text: string): string {
  return hasColours(process.stdout) ? styleText(style, text) : text;
}

/** One line on standard output. */
export function printLine(text = ""): void {
  process.stdout.write(`${text}\n`);
}

/** Labels of lines and bars are filled up to this. */
export const LABEL_CHARS = 10;

/** How often a progress line is printed where no terminal can show a bar. */
const PLAIN_PROGRESS_MS = 2000;

/**
 * Progress of one phase: a bar on standard error if that is a terminal, else a plain line on standard output now and then
 * (standard error then stays free for errors).
 */
export class Progress {
  readonly #label: string;
  readonly #unit: string;
  readonly #total: number;
  readonly #bar: cliProgress.SingleBar | undefined;
  #lastPlainMs = performance.now();
  #value = 0;

  constructor(label: string, total: number, unit: string) {
    this.#label = label;
    this.#unit = unit;
    this.#total = total;
    if (process.stderr.isTTY && total > 0) {
      this.#bar = new cliProgress.SingleBar({
        stream: process.stderr,
        format: `${label.padEnd(LABEL_CHARS)} {bar} {percentage}% {value}/{total} ${unit}, {duration_formatted}`,
        formatValue: (value, _options, type) => (type === "percentage" ? `${value}`.padStart(3) : formatCount(value)),
        barCompleteChar: "#",
        barIncompleteChar: "-",
        barsize: 30,
        hideCursor: false, // A killed process could not show it again.
        clearOnComplete: true,
        noTTYOutput: false,
        gracefulExit: false, // Signals are handled in one place of our own.
      });
      this.#bar.start(total, 0);
    }
  }

  /** Takes the bar away while `print` writes lines. */
  interrupt(print: () => void): void {
    this.#bar?.stop();
    print();
    this.#bar?.start(this.#total, this.#value);
  }

  update(value: number): void {
    this.#value = value;
    if (this.#bar !== undefined) {
      this.#bar.update(value);
      return;
    }
    const nowMs = performance.now();
    if (process.stderr.isTTY || nowMs - this.#lastPlainMs < PLAIN_PROGRESS_MS) return;
    this.#lastPlainMs = nowMs;
    const percent = this.#total === 0 ? 100 : Math.floor((100 * value) / this.#total);
    printLine(`${this.#label}: ${formatCount(value)} of ${formatCount(this.#total)} ${this.#unit} (${percent} %)`);
  }

  /** Takes the bar away. Idempotent. */
  stop(): void {
    this.#bar?.stop();
  }
}
