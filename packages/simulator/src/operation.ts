import type { StatePut } from "@tidemark/base";

/** Identity of a file or directory that survives renames. */
export type Inode = number;

/** The directory `/`; relative paths start there too. */
export const ROOT_INODE: Inode = 0;

/** Changes the contents or size of one file; pending until that file is synced. */
export type DataOperation =
  | { readonly type: "write"; readonly inode: Inode; readonly positionBytes: number; readonly bytes: Uint8Array }
  | { readonly type: "truncate"; readonly inode: Inode; readonly sizeBytes: number };

/** Changes names; pending until `directory` is synced (for a rename: the directory that receives the name). */
export type NameOperation =
  | {
      readonly type: "link";
      readonly directory: Inode;
      readonly name: string;
      readonly inode: Inode;
      readonly kind: "file" | "directory";
    }
  | { readonly type: "unlink"; readonly directory: Inode; readonly name: string; readonly inode: Inode }
  | {
      readonly type: "rename";
      readonly fromDirectory: Inode;
      readonly fromName: string;
      readonly directory: Inode;
      readonly name: string;
      readonly inode: Inode;
    };

/** A commit to State; pending until a commit with `sync` at or after it. */
export interface CommitOperation {
  readonly type: "commit";
  readonly puts: readonly StatePut[];
  readonly sync: boolean;
}

/** What a crash of the machine may lose. */
export type PendingOperation = (DataOperation | NameOperation | CommitOperation) & Numbered;

/** Ends the pending state of operations numbered below `before`. */
export type BarrierOperation =
  | { readonly type: "sync"; readonly inode: Inode; readonly before: number }
  | { readonly type: "syncDirectory"; readonly directory: Inode; readonly before: number }
  /**
   * A failed sync: the pages count as clean although they never reached the disk. Reads then see the `new` bytes, as long as the
   * machine runs, or the `old` ones.
   */
  | { readonly type: "failedSync"; readonly inode: Inode; readonly before: number; readonly reads: "new" | "old" };

interface Numbered {
  /** Place in the one order of all operations of a machine, from 0. */
  readonly number: number;
  /** For people: the path at the time of the call, `state` for commits. */
  readonly path: string;
}

/** One mutating operation as it happened. Also crash points: a crash lies between two of them. */
export type Operation = (DataOperation | NameOperation | CommitOperation | BarrierOperation) & Numbered;

/** An operation without its number, which the log gives. */
export type NewOperation = (DataOperation | NameOperation | CommitOperation | BarrierOperation) & {
  readonly path: string;
};

export function isPending(operation: Operation): operation is PendingOperation {
  return operation.type !== "sync" && operation.type !== "syncDirectory" && operation.type !== "failedSync";
}

export function isDataOperation(operation: PendingOperation): operation is DataOperation & Numbered {
  return operation.type === "write" || operation.type === "truncate";
}
