import { FileError, writeFully } from "@tidemark/base";
import type { FileSystem } from "@tidemark/base";
import type { LogSegment } from "./segment.ts";

/** Copied at a time. */
const COPY_BYTES = 1024 ** 2;

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
  segment: LogSegment,
  ranges: readonly ByteRange[],
  path: string,
): Promise<void> {
  const copy = await files.open(path, "truncate");
  let writtenBytes = 0;
  try {
    await segment.use(async (file) => {
      for (const { fromBytes, toBytes } of ranges)
        for (let atBytes = fromBytes; atBytes < toBytes;) {
          const chunk = new Uint8Array(Math.min(COPY_BYTES, toBytes - atBytes));
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
