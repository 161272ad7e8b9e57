import { FileError, writeFully } from "@tidemark/base";
import type { FileHandle, FileSystem } from "@tidemark/base";
import type { DirectIo } from "./direct-io.ts";

/** Copied at a time. */
const COPY_BYTES = 1024 ** 2;

/** A segment, as far as it is copied. */
export interface CopiedSegment {
  readonly path: string;
  readonly io: DirectIo;
  use<Result>(read: (file: FileHandle) => Promise<Result>): Promise<Result>;
}

/** Bytes `[fromBytes, toBytes)` of a file. */
export interface ByteRange {
  readonly fromBytes: number;
  readonly toBytes: number;
}

/**
 * Writes these parts of a segment's log file, one behind the other, to a fresh file, which is on the disk when it resolves. The caller syncs
 * the directory.
 * @throws FileError
 */
export async function copyRanges(
  files: FileSystem,
  segment: CopiedSegment,
  ranges: readonly ByteRange[],
  path: string,
): Promise<void> {
  const copy = await files.open(path, "truncate");
  const longestBytes = Math.max(0, ...ranges.map(({ fromBytes, toBytes }) => toBytes - fromBytes));
  const buffer = new Uint8Array(Math.min(COPY_BYTES, longestBytes));
  let writtenBytes = 0;
  try {
    await segment.use(async (file) => {
      for (const { fromBytes, toBytes } of ranges)
        for (let atBytes = fromBytes; atBytes < toBytes;) {
          const chunk = buffer.subarray(0, Math.min(buffer.length, toBytes - atBytes));
          const count = await segment.io.read(file, chunk, atBytes);
          if (count < chunk.length) throw new FileError("EIO", "read", segment.path);
          await writeFully(copy, chunk, writtenBytes);
          atBytes += chunk.length;
          writtenBytes += chunk.length;
        }
    });
    await copy.sync();
  } finally {
    await copy.close();
  }
}
