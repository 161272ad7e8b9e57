import { fail } from "@tidemark/base";
import { FileContent } from "./file-content.ts";
import { DigestSum, hashBytes, hashText } from "./hash.ts";
import type { Hash64 } from "./hash.ts";
import { ROOT_INODE } from "./operation.ts";
import type { CommitOperation, DataOperation, Inode, NameOperation } from "./operation.ts";

export type VolumeNode =
  | { readonly type: "file"; readonly content: FileContent }
  | { readonly type: "directory"; readonly entries: ReadonlyMap<string, Inode> };

const NO_ENTRIES: ReadonlyMap<string, Inode> = new Map();
const EMPTY_DIRECTORY: VolumeNode = { type: "directory", entries: NO_ENTRIES };
const EMPTY_FILE: VolumeNode = { type: "file", content: FileContent.empty };
const DIRECTORY_HASH: Hash64 = { low: 1, high: 1 };

/**
 * One image of a machine's storage: directories, files, and State. Operations apply to it one by one, in any selection: each names
 * inodes, so that it keeps its meaning when an earlier one was lost.
 *
 * A clone costs one copy of the inode table: it shares all nodes, and whoever changes one copies that first.
 */
export class Volume {
  readonly #nodes: Map<Inode, VolumeNode>;
  #state: ReadonlyMap<string, Uint8Array>;
  /** Directories whose entries no clone shares: they may change in place. */
  readonly #owned = new Set<Inode>();

  private constructor(nodes: Map<Inode, VolumeNode>, state: ReadonlyMap<string, Uint8Array>) {
    this.#nodes = nodes;
    this.#state = state;
  }

  static empty(): Volume {
    return new Volume(new Map([[ROOT_INODE, EMPTY_DIRECTORY]]), new Map());
  }

  clone(): Volume {
    this.#owned.clear();
    return new Volume(new Map(this.#nodes), this.#state);
  }

  get state(): ReadonlyMap<string, Uint8Array> {
    return this.#state;
  }

  get inodes(): Iterable<Inode> {
    return this.#nodes.keys();
  }

  node(inode: Inode): VolumeNode | undefined {
    return this.#nodes.get(inode);
  }

  /** Empty for an inode that is no file, or none yet. */
  content(inode: Inode): FileContent {
    const node = this.#nodes.get(inode);
    return node?.type === "file" ? node.content : FileContent.empty;
  }

  entries(inode: Inode): ReadonlyMap<string, Inode> {
    const node = this.#nodes.get(inode);
    return node?.type === "directory" ? node.entries : NO_ENTRIES;
  }

  setContent(inode: Inode, content: FileContent): void {
    this.#nodes.set(inode, { type: "file", content });
  }

  /** Drops an inode that no name leads to. */
  forget(inode: Inode): void {
    this.#owned.delete(inode);
    this.#nodes.delete(inode);
  }

  apply(operation: DataOperation | NameOperation | CommitOperation): void {
    switch (operation.type) {
      case "write":
        this.setContent(operation.inode, this.content(operation.inode).write(operation.bytes, operation.positionBytes));
        break;
      case "truncate":
        this.setContent(operation.inode, this.content(operation.inode).truncate(operation.sizeBytes));
        break;
      case "link":
        if (!this.#nodes.has(operation.inode)) {
          this.#nodes.set(operation.inode, operation.kind === "file" ? EMPTY_FILE : EMPTY_DIRECTORY);
        }
        this.#setEntry(operation.directory, operation.name, operation.inode);
        break;
      case "unlink":
        this.#setEntry(operation.directory, operation.name, undefined);
        break;
      case "rename":
        this.#setEntry(operation.fromDirectory, operation.fromName, undefined);
        if (!this.#nodes.has(operation.inode)) this.#nodes.set(operation.inode, EMPTY_FILE);
        this.#setEntry(operation.directory, operation.name, operation.inode);
        break;
      case "commit":
        this.#commit(operation);
        break;
      default:
        fail("every operation is handled", { operation: operation satisfies never });
    }
  }

  #setEntry(directory: Inode, name: string, inode: Inode | undefined): void {
    const node = this.#nodes.get(directory);
    const isOwned = node?.type === "directory" && this.#owned.has(directory);
    const entries = isOwned ? (node.entries as Map<string, Inode>) : new Map(this.entries(directory));
    if (inode === undefined) entries.delete(name);
    else entries.set(name, inode);
    if (isOwned) return;
    this.#nodes.set(directory, { type: "directory", entries });
    this.#owned.add(directory);
  }

  #commit(operation: CommitOperation): void {
    const state = new Map(this.#state);
    for (const put of operation.puts) {
      if (put.value === undefined) state.delete(put.key);
      else state.set(put.key, put.value);
    }
    this.#state = state;
  }
}

/** Paths of a volume, from the root: `visit` gets directories (without the root) before their children. */
export function walk(volume: Volume, visit: (path: string, inode: Inode, node: VolumeNode) => void): void {
  const descend = (prefix: string, directory: Inode): void => {
    for (const [name, inode] of volume.entries(directory)) {
      const node = volume.node(inode);
      if (node === undefined) continue;
      const path = `${prefix}/${name}`;
      visit(path, inode, node);
      if (node.type === "directory") descend(path, inode);
    }
  };
  descend("", ROOT_INODE);
}

/** What a machine's storage holds at one moment: immutable, cheap, sharing memory with its neighbours. */
export class DiskImage {
  readonly #volume: Volume;
  #digest: string | undefined;

  /** Keeps the volume, which nobody may change any more. */
  constructor(volume: Volume) {
    this.#volume = volume;
  }

  static empty(): DiskImage {
    return new DiskImage(Volume.empty());
  }

  /** The image as a volume, not to be changed: clone it. */
  get volume(): Volume {
    return this.#volume;
  }

  /** 64-bit hash over paths, contents and State, as hexadecimal digits. Equal for equal images, whatever led to them. */
  get digest(): string {
    this.#digest ??= digestOf(this.#volume);
    return this.#digest;
  }

  /** Path to content of every file; views, not to be written to. */
  files(): ReadonlyMap<string, Uint8Array> {
    const files = new Map<string, Uint8Array>();
    walk(this.#volume, (path, _inode, node) => {
      if (node.type === "file") files.set(path, node.content.bytes);
    });
    return files;
  }

  directories(): ReadonlySet<string> {
    const directories = new Set<string>();
    walk(this.#volume, (path, _inode, node) => {
      if (node.type === "directory") directories.add(path);
    });
    return directories;
  }

  state(): ReadonlyMap<string, Uint8Array> {
    return this.#volume.state;
  }
}

/** Hashes of names and keys: few different ones, asked for again and again. */
const nameHashes = new Map<string, number>();
const NAME_HASHES_MAX = 10_000;

function nameHash(name: string): number {
  let hash = nameHashes.get(name);
  if (hash === undefined) {
    hash = hashText(name);
    if (nameHashes.size >= NAME_HASHES_MAX) nameHashes.clear();
    nameHashes.set(name, hash);
  }
  return hash;
}

const STATE_SALT = 0x51a7e;

/** Spreads the hash of a directory's path before that of a name in it is added: `a/b` is not `b/a`. */
const PATH_FACTOR = 0x01000193;

function digestOf(volume: Volume): string {
  const sum = new DigestSum();
  const descend = (directory: Inode, directoryHash: number): void => {
    for (const [name, inode] of volume.entries(directory)) {
      const node = volume.node(inode);
      if (node === undefined) continue;
      const pathHash = (Math.imul(directoryHash, PATH_FACTOR) + nameHash(name)) | 0;
      sum.add(pathHash, node.type === "file" ? node.content.hash : DIRECTORY_HASH);
      if (node.type === "directory") descend(inode, pathHash);
    }
  };
  descend(ROOT_INODE, 0);
  for (const [key, value] of volume.state) sum.add(nameHash(key) ^ STATE_SALT, hashBytes(value));
  return sum.toString();
}
