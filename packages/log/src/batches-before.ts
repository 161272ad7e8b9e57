import { fail, toOffset } from "@tidemark/base";
import type { Offset } from "@tidemark/base";
import { endTransactionMarkerOf } from "@tidemark/wire";
import { floorSegment } from "./log-read.ts";
import { ProducerReplay } from "./producer-replay.ts";
import type { ProducerSnapshots } from "./producer-snapshots.ts";
import type { ProducerState } from "./producer-state.ts";
import type { LogSegment } from "./segment.ts";
import { walkSegment } from "./segment-walk.ts";

/** A cut of a log: what stays of it. */
export interface KeptSegments {
  /** The segments that stay; of the last one, the bytes below `positionBytes`. */
  readonly segments: readonly LogSegment[];
  readonly positionBytes: number;
  /** Where the log ends then. */
  readonly offset: Offset;
}

/**
 * Where the batches of `segments` end if the last segment is cut at `positionBytes`, and what their producers are then.
 *
 * Reads headers from the newest snapshot at or below the cut on, and of one segment more, for the batches that it does not name.
 * @param onRead called after a segment was read
 * @throws FileError
 */
export async function batchesBefore(
  { segments, positionBytes, offset }: KeptSegments,
  snapshots: ProducerSnapshots,
  onRead: (segment: LogSegment) => Promise<void> | undefined,
): Promise<{ endOffset: Offset; producers: ProducerState }> {
  const replay = new ProducerReplay(await snapshots.load(offset));
  const firstBaseOffset = segments[0]?.baseOffset ?? fail("a log has a segment");
  const walked: { endOffset?: Offset } = {};
  let from = Math.max(floorSegment(segments, replay.startOffset) - 1, 0);
  const walk = async (segment: LogSegment, doesReplay: boolean): Promise<void> => {
    const toBytes = segment === segments.at(-1) ? positionBytes : segment.sizeBytes;
    await segment.use((file) =>
      walkSegment({
        io: segment.io,
        file,
        fromBytes: 0,
        toBytes,
        verifyCrc: false,
        readsControlBatches: true,
        onBatch: (header, _positionBytes, bytes) => {
          if (doesReplay) replay.batch(header, endTransactionMarkerOf(bytes, header));
          walked.endOffset = toOffset(header.lastOffset + 1);
          return undefined;
        },
      }),
    );
    await onRead(segment);
  };
  for (const segment of segments.slice(from)) await walk(segment, true);
  // Nothing but empty segments, so far.
  while (walked.endOffset === undefined && from > 0) {
    from -= 1;
    await walk(segments[from] ?? fail("the segment is there", { from }), false);
  }
  return { endOffset: walked.endOffset ?? firstBaseOffset, producers: replay.finish() };
}

/** Where the batches of a segment end; its base offset when there is none. @throws FileError */
export async function endOfBatches(segment: LogSegment): Promise<Offset> {
  let endOffset = segment.baseOffset;
  await segment.use((file) =>
    walkSegment({
      io: segment.io,
      file,
      fromBytes: segment.index.lastEntry?.positionBytes ?? 0,
      toBytes: segment.sizeBytes,
      verifyCrc: false,
      onBatch: (header) => {
        endOffset = toOffset(header.lastOffset + 1);
        return undefined;
      },
    }),
  );
  return endOffset;
}
