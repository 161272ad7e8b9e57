/** What is being measured, on standard error: one line that changes on a terminal, a line for each workload elsewhere. */
export class Progress {
  #workload = "";

  show(workload: string, what: string): void {
    if (process.stderr.isTTY) process.stderr.write(`\r\u001B[K${what}`);
    else if (workload !== this.#workload) process.stderr.write(`measuring: ${workload}\n`);
    this.#workload = workload;
  }

  /** Something that takes long and is no measuring: a line that stays. */
  announce(what: string): void {
    this.clear();
    process.stderr.write(`${what}\n`);
  }

  /** Takes the line away. */
  clear(): void {
    if (process.stderr.isTTY) process.stderr.write("\r\u001B[K");
  }
}
