import type { FlushMode } from "@tidemark/log";
import type { Peers } from "./peers.ts";

/** A peer used as a log: values in order, found again by their number from 0 on. What is synchronous there stays so here. */
export interface PeerLog {
  /** In one step, as the peer has it: a transaction, a batch, an array. */
  appendMany(values: readonly Buffer[]): void | Promise<void>;
  /** Done when the peer calls it so, and durable where the log was opened for that. */
  appendOne(value: Buffer): void | Promise<void>;
  /** To be called before `get`, for peers that have other names for values than their numbers. */
  prepareGets?(): Promise<void>;
  get(sequence: number): Uint8Array | undefined | Promise<Uint8Array | undefined>;
  /** All values in order, until `visit` answers false. */
  scan(visit: (value: Uint8Array) => boolean): Promise<void>;
  /** Tells values that are appended from now on, where the peer can. @returns ends it */
  follow?(visit: (value: Uint8Array) => void): () => void;
  close(): Promise<void>;
}

/** A kind of peer. */
export interface PeerKind {
  readonly name: string;
  /** What `appendMany` is there. */
  readonly batchName: string;
  readonly flushModes: readonly FlushMode[];
  readonly canFollow: boolean;
  /** Values that are stored before reading is measured, at most: some take long to store them. */
  readonly storedMax: { readonly full: number; readonly quick: number };
  /** @throws PeerUnavailableError */
  open(directory: string, flush: FlushMode, peers: Peers): Promise<PeerLog>;
}
