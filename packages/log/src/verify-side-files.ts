import { joinPath, readFileIfPresent } from "@tidemark/base";
import type { FileSystem, Offset } from "@tidemark/base";
import {
  parseSegmentFileName,
  PRODUCER_SNAPSHOT_SUFFIX,
  segmentFileName,
  TRANSACTION_INDEX_SUFFIX,
} from "./file-names.ts";
import { decodeProducerSnapshot } from "./producer-snapshot.ts";
import { TransactionIndex } from "./transaction-index.ts";
import type { VerifyFindings } from "./verify-report.ts";

interface SideFileContext {
  readonly files: FileSystem;
  readonly findings: VerifyFindings;
  /** Whether a crash may have left the file, or a node be writing it: the next open puts it right. */
  readonly mayBeTorn: boolean;
}

/** Looks at each producer snapshot of a partition: whole, and its CRC right. @throws FileError */
export async function verifySnapshots(
  { files, findings, mayBeTorn }: SideFileContext,
  directory: string,
  names: readonly string[],
): Promise<void> {
  for (const name of names) {
    if (parseSegmentFileName(name, PRODUCER_SNAPSHOT_SUFFIX) === undefined) continue;
    const path = joinPath(directory, name);
    const bytes = await readFileIfPresent(files, path);
    const decoded = bytes === undefined ? undefined : decodeProducerSnapshot(bytes);
    if (decoded?.type !== "damaged") continue;
    const detail = `${decoded.reason}: the next open removes it and takes the producers from the log`;
    findings.add(mayBeTorn ? "note" : "error", "snapshot-damaged", path, detail);
  }
}

/** Looks at the transaction index of a segment, if there is one. @throws FileError */
export async function verifyTransactionIndex(
  { files, findings, mayBeTorn }: SideFileContext,
  directory: string,
  segment: { readonly baseOffset: Offset; readonly isActive: boolean },
): Promise<void> {
  const path = joinPath(directory, segmentFileName(segment.baseOffset, TRANSACTION_INDEX_SUFFIX));
  const bytes = await readFileIfPresent(files, path);
  const decoded = bytes === undefined ? undefined : TransactionIndex.decode(segment.baseOffset, bytes);
  if (decoded === undefined || decoded instanceof TransactionIndex) return;
  const severity = segment.isActive && mayBeTorn ? "note" : "error";
  findings.add(severity, "transaction-index-damaged", path, `${decoded.problem}: the next open makes it anew`);
}
