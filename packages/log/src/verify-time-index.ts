import { readFileIfPresent } from "@tidemark/base";
import type { FileSystem } from "@tidemark/base";
import type { BatchHeader } from "@tidemark/wire";
import { NO_TIMESTAMP, TIME_INDEX_ENTRY_BYTES } from "./time-index.ts";
import type { TimeIndexEntry } from "./time-index.ts";
import type { VerifyFindings } from "./verify-report.ts";

export interface TimeIndexToVerify {
  readonly path: string;
  readonly baseOffset: number;
  /** Whether the next open makes the index anew in any case. */
  readonly isStaleExpected: boolean;
  /** Whether the stop was not clean, or a node is writing. */
  readonly mayBeTorn: boolean;
}

/** A time index beside the batches of its segment, which go by one by one. Only reads. */
export class TimeIndexVerifier {
  readonly #index: TimeIndexToVerify;
  readonly #findings: VerifyFindings;
  readonly #entries: readonly TimeIndexEntry[];
  #next = 0;
  #maxTimestamp = NO_TIMESTAMP;

  private constructor(index: TimeIndexToVerify, findings: VerifyFindings, entries: readonly TimeIndexEntry[]) {
    this.#index = index;
    this.#findings = findings;
    this.#entries = entries;
  }

  /** @returns `undefined` when there is no index, or none that its batches could be held against. @throws FileError */
  static async open(
    files: FileSystem,
    index: TimeIndexToVerify,
    findings: VerifyFindings,
  ): Promise<TimeIndexVerifier | undefined> {
    const bytes = await readFileIfPresent(files, index.path);
    if (bytes === undefined) {
      findings.add("note", "index-missing", index.path, "there is no time index: the next open makes it anew");
      return undefined;
    }
    const severity = index.isStaleExpected ? "note" : "error";
    if (bytes.length % TIME_INDEX_ENTRY_BYTES !== 0)
      findings.add(severity, "index-damaged", index.path, `${bytes.length} bytes are no whole number of entries`);
    const entries: TimeIndexEntry[] = [];
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let at = 0; at + TIME_INDEX_ENTRY_BYTES <= bytes.length; at += TIME_INDEX_ENTRY_BYTES) {
      const timestamp = Number(view.getBigInt64(at));
      const offset = index.baseOffset + view.getInt32(at + 8);
      const previous = entries.at(-1);
      if (previous !== undefined && !(timestamp > previous.timestamp && offset >= previous.offset)) {
        const detail = `entry ${entries.length} (time ${timestamp}, offset ${offset}) does not follow the one before it`;
        findings.add(severity, "index-damaged", index.path, detail, { offset });
        return undefined;
      }
      entries.push({ timestamp, offset });
    }
    return new TimeIndexVerifier(index, findings, entries);
  }

  /** The next batch of the segment, in order and sound. */
  batch({ lastOffset, maxTimestamp }: BatchHeader): void {
    const isLargest = maxTimestamp > this.#maxTimestamp;
    if (isLargest) this.#maxTimestamp = maxTimestamp;
    for (;;) {
      const entry = this.#entries[this.#next];
      if (entry === undefined || entry.offset > lastOffset) return;
      if (!isLargest || entry.offset !== lastOffset || entry.timestamp !== maxTimestamp)
        this.#report(entry, `the largest timestamp up to there is ${this.#maxTimestamp}`);
      this.#next += 1;
    }
  }

  /** All batches went by. The last entry has to say what the largest timestamp is, since retention asks it. */
  end(): void {
    for (const entry of this.#entries.slice(this.#next)) this.#report(entry, "no sound batch ends there");
    const last = this.#entries.at(-1)?.timestamp ?? NO_TIMESTAMP;
    if (last >= this.#maxTimestamp) return; // Larger ones have been reported.
    const { path, mayBeTorn } = this.#index;
    const detail = `ends with time ${last}, the segment with ${this.#maxTimestamp}`;
    this.#findings.add(mayBeTorn ? "note" : "error", mayBeTorn ? "index-stale" : "index-entry-wrong", path, detail);
  }

  #report({ timestamp, offset }: TimeIndexEntry, reason: string): void {
    const { path, isStaleExpected } = this.#index;
    const detail = `an entry says that time ${timestamp} is reached at offset ${offset}: ${reason}`;
    if (isStaleExpected) this.#findings.add("note", "index-stale", path, detail, { offset });
    else this.#findings.add("error", "index-entry-wrong", path, detail, { offset });
  }
}
