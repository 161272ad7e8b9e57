import { FileError } from "@tidemark/base";
import type { FileOperation } from "@tidemark/base";
import { ROOT_INODE } from "./operation.ts";
import type { Inode } from "./operation.ts";
import type { Volume } from "./volume.ts";

/** Paths come again and again. */
const knownParts = new Map<string, readonly string[]>();
const KNOWN_PARTS_MAX = 10_000;

/** Parts of a path; `.` and empty parts fall away, `..` goes up. Relative paths start at the root. */
export function partsOf(path: string): readonly string[] {
  const known = knownParts.get(path);
  if (known !== undefined) return known;
  const parts: string[] = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === "..") parts.pop();
    else parts.push(part);
  }
  if (knownParts.size >= KNOWN_PARTS_MAX) knownParts.clear();
  knownParts.set(path, parts);
  return parts;
}

/** Where a name is or would be. */
export interface Place {
  readonly directory: Inode;
  readonly name: string;
  /** Undefined when nothing has the name. */
  readonly inode: Inode | undefined;
}

/**
 * Looks a path up, except that its last part may be absent.
 * @param errorPath what errors name: the path of the call
 * @throws FileError ENOENT or ENOTDIR when a directory on the way is missing or a file
 */
export function locate(volume: Volume, path: string, operation: FileOperation, errorPath = path): Place {
  const parts = partsOf(path);
  const name = parts.at(-1);
  if (name === undefined) return { directory: ROOT_INODE, name: "", inode: ROOT_INODE };
  let directory = ROOT_INODE;
  for (let depth = 0; depth < parts.length - 1; depth++) {
    const inode = volume.entries(directory).get(parts[depth] ?? "");
    if (inode === undefined) throw new FileError("ENOENT", operation, errorPath);
    if (volume.node(inode)?.type !== "directory") throw new FileError("ENOTDIR", operation, errorPath);
    directory = inode;
  }
  return { directory, name, inode: volume.entries(directory).get(name) };
}

/** @throws FileError ENOENT, ENOTDIR */
export function locateDirectory(volume: Volume, path: string, operation: FileOperation): Inode {
  const { inode } = locate(volume, path, operation);
  if (inode === undefined) throw new FileError("ENOENT", operation, path);
  if (volume.node(inode)?.type !== "directory") throw new FileError("ENOTDIR", operation, path);
  return inode;
}

/** Whether `inode` is `directory` or lies below it. */
export function isWithin(volume: Volume, directory: Inode, inode: Inode): boolean {
  if (directory === inode) return true;
  for (const child of volume.entries(directory).values()) {
    if (volume.node(child)?.type === "directory" && isWithin(volume, child, inode)) return true;
  }
  return false;
}
