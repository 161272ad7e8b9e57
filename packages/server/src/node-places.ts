import { basename } from "node:path";
import { directoryOf, joinPath, readFileIfPresent } from "@tidemark/base";
import type { FileSystem } from "@tidemark/base";
import { META_PROPERTIES_FILE } from "@tidemark/log";

/**
 * The log directory, or the partition of one, that a path stands for, and the state of the node that it is of, where both lie as
 * `Tidemark.open` lays them out.
 */
export async function placesOf(
  files: FileSystem,
  path: string,
): Promise<{ readonly logDirectory: string; readonly stateDirectory: string | undefined }> {
  const isHome = async (directory: string): Promise<boolean> =>
    (await readFileIfPresent(files, joinPath(directory, META_PROPERTIES_FILE)).catch(() => undefined)) !== undefined;
  const inner = joinPath(path, "log");
  if (await isHome(inner)) return { logDirectory: inner, stateDirectory: joinPath(path, "state") };
  for (const home of [path, directoryOf(path)]) {
    if (basename(home) === "log" && (await isHome(home)))
      return { logDirectory: path, stateDirectory: joinPath(directoryOf(home), "state") };
  }
  return { logDirectory: path, stateDirectory: undefined };
}
