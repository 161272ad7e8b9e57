import { FileError, decodeUtf8, encodeUtf8, joinPath, readFileIfPresent, writeFully } from "@tidemark/base";
import type { FileSystem } from "@tidemark/base";

/** Present only between a clean stop and the next start. */
export const CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown";

/** Kafka's "no broker epoch": a node without a controller has none. */
export const NO_BROKER_EPOCH = -1;

export interface CleanShutdownMarker {
  /** -1 when it is unknown or the content is unreadable: only the file's existence matters to recovery. */
  readonly brokerEpoch: number;
}

/** The marker, or `undefined` when the last stop was not clean. Changes nothing. @throws FileError */
export async function readCleanShutdownMarker(
  files: FileSystem,
  directory: string,
): Promise<CleanShutdownMarker | undefined> {
  const bytes = await readFileIfPresent(files, joinPath(directory, CLEAN_SHUTDOWN_FILE));
  return bytes === undefined ? undefined : { brokerEpoch: parseBrokerEpoch(bytes) };
}

/**
 * Reads the marker and removes it durably, before any log is opened: a crash while loading must count as unclean.
 * @throws FileError; the directory is then not usable, since the next start would trust logs that this one changed
 * Source: apache/kafka core/.../log/LogManager.scala loadLogs (KAFKA-10471)
 */
export async function takeCleanShutdownMarker(
  files: FileSystem,
  directory: string,
): Promise<CleanShutdownMarker | undefined> {
  const marker = await readCleanShutdownMarker(files, directory);
  if (marker === undefined) return undefined;
  await files.unlink(joinPath(directory, CLEAN_SHUTDOWN_FILE));
  await files.syncDirectory(directory);
  return marker;
}

/**
 * Says that every log in the directory was flushed and closed: the last thing a stopping node writes.
 *
 * Kafka does not sync the directory here, and need not: a marker that a crash takes away costs a scan. Ours does, so that
 * a clean stop is one after a power cut too.
 * @throws FileError
 * Source: apache/kafka storage/.../internals/checkpoint/CleanShutdownFileHandler.java
 */
export async function writeCleanShutdownMarker(
  files: FileSystem,
  directory: string,
  brokerEpoch: number,
): Promise<void> {
  const file = await files.open(joinPath(directory, CLEAN_SHUTDOWN_FILE), "truncate");
  try {
    await writeFully(file, encodeUtf8(`{"version":0,"brokerEpoch":${brokerEpoch}}`), 0);
    await file.sync();
  } catch (error) {
    await removeMarker(files, directory);
    throw error;
  } finally {
    await file.close();
  }
  await files.syncDirectory(directory);
}

/** A marker that could not be written whole still exists, and existence is what counts; so it goes. */
async function removeMarker(files: FileSystem, directory: string): Promise<void> {
  try {
    await files.unlink(joinPath(directory, CLEAN_SHUTDOWN_FILE));
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
  }
}

function parseBrokerEpoch(bytes: Uint8Array): number {
  try {
    const content: unknown = JSON.parse(decodeUtf8(bytes));
    if (typeof content !== "object" || content === null || !("brokerEpoch" in content)) return NO_BROKER_EPOCH;
    return typeof content.brokerEpoch === "number" && Number.isSafeInteger(content.brokerEpoch)
      ? content.brokerEpoch
      : NO_BROKER_EPOCH;
  } catch {
    return NO_BROKER_EPOCH;
  }
}
