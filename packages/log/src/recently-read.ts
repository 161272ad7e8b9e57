import { SEALED_FILES_OPEN_MAX } from "./config.ts";
import type { LogSegment } from "./segment.ts";

/** Keeps the files of a bounded number of sealed segments open for readers. A log that nobody reads behind its active segment has none. */
export class RecentlyRead {
  /** Least recently read first. */
  readonly #segments = new Set<LogSegment>();

  /** From its next use on its file stays open. @param active never closed @throws FileError of the close of another */
  async note(segment: LogSegment, active: LogSegment): Promise<void> {
    this.#segments.delete(segment);
    this.#segments.add(segment);
    segment.keepOpen();
    for (const oldest of this.#segments) {
      if (this.#segments.size <= SEALED_FILES_OPEN_MAX) return;
      this.#segments.delete(oldest);
      if (oldest !== active) await oldest.release();
    }
  }

  /** As `note`, of one whose file is kept open already. @returns whether it is */
  noteAgain(segment: LogSegment): boolean {
    if (!this.#segments.delete(segment)) return false;
    this.#segments.add(segment);
    return true;
  }

  /** It leaves the log. */
  forget(segment: LogSegment): void {
    this.#segments.delete(segment);
  }
}
