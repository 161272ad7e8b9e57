/**
 * The Environment: everything that is not a function of its arguments reaches the engine through these ports.
 *
 * `runtime-node` implements them over the operating system, `simulator` over a seeded world; one contract suite in
 * `test/contract/` holds both to the text below. Paths are absolute or relative to the process, with `/` between parts.
 */

import type { NetworkError } from "./network-error.ts";

export interface Environment {
  readonly clock: Clock;
  readonly random: Random;
  readonly files: FileSystem;
  readonly workers: WorkerPool;
}

export interface Timer {
  /** After this returns the timer does not fire. Idempotent. */
  cancel(): void;
}

export interface Clock {
  /** Unix time in ms; may jump either way. For record timestamps only. */
  wallMs(): number;
  /** Fractional ms since some fixed point; never goes back. For time-outs and latencies. */
  monotonicMs(): number;
  /** Calls `fire` once, not before `delayMs` have passed. A pending timer does not keep the process alive. */
  setTimer(delayMs: number, fire: () => void): Timer;
}

export interface Random {
  /** Uniform integer in [0, 2^32). `site` names the caller, so that one site's draws do not shift another's. */
  uint32(site: string): number;
  /** Uniform integer in [0, bound), 1 <= bound <= 2^32. */
  below(site: string, bound: number): number;
  /** `count` uniform bytes. */
  bytes(site: string, count: number): Uint8Array;
}

/**
 * How to open a file:
 * - `read`: must exist (ENOENT); writing is refused;
 * - `write`: read and write, must exist (ENOENT);
 * - `create`: read and write, made empty if absent, kept as it is if present;
 * - `truncate`: read and write, made empty in any case.
 */
export type OpenMode = "read" | "write" | "create" | "truncate";

/**
 * One open file. Positions and counts are bytes. Every rejection is a `FileError`; after `close` every call rejects with
 * code `EBADF`. Calls on one handle may overlap; the caller orders those that touch the same range.
 *
 * What a crash of the machine leaves: bytes covered by a completed `sync` are there. Of later writes and truncations any
 * part may be there, torn anywhere, and bytes of a grown file may read as zeros. A crash of the process alone loses nothing.
 */
export interface FileHandle {
  readonly path: string;
  /** Bytes read into the front of `target`; may be fewer than asked, 0 only at or past the end of the file. */
  readAt(target: Uint8Array, positionBytes: number): Promise<number>;
  /** Bytes written from the front of `source`; may be fewer than asked: the caller loops. A gap reads as zeros. */
  writeAt(source: Uint8Array, positionBytes: number): Promise<number>;
  /** As `readAt`, at once, holding up the event loop. */
  readNow(target: Uint8Array, positionBytes: number): number;
  /** As `writeAt`, at once, holding up the event loop. */
  writeNow(source: Uint8Array, positionBytes: number): number;
  /** Sets the size; growing fills with zeros. */
  truncate(sizeBytes: number): Promise<void>;
  /**
   * Makes contents and size durable (fdatasync). On rejection the content is unknown and may be lost although it still
   * reads well: the call is never repeated, the log directory goes offline.
   */
  sync(): Promise<void>;
  size(): Promise<number>;
  /** When the contents last changed, Unix ms by the system's clock. After a crash of the machine any time up to its new start. */
  modifiedMs(): Promise<number>;
  /** Does not sync. Idempotent. */
  close(): Promise<void>;
}

export interface FileSystem {
  /**
   * @throws FileError ENOENT, EACCES, EROFS, ENOSPC, EMFILE, EISDIR, EIO
   * A file that was created survives a crash of the machine only after `syncDirectory` of its directory.
   */
  open(path: string, mode: OpenMode): Promise<FileHandle>;
  /** Replaces `to` atomically. Durable after `syncDirectory`; until then a crash shows either name's state. */
  rename(from: string, to: string): Promise<void>;
  /** @throws FileError ENOENT when absent. Open handles stay usable. Durable after `syncDirectory`. */
  unlink(path: string): Promise<void>;
  /** Names (not paths) of files and directories in `directory`, in no particular order. @throws FileError ENOENT, ENOTDIR */
  list(directory: string): Promise<readonly string[]>;
  /** Makes the directory and its missing parents; an existing one is no error. Durable after `syncDirectory` of the parent. */
  makeDirectory(path: string): Promise<void>;
  /** Removes an empty directory. @throws FileError ENOENT, ENOTEMPTY */
  removeDirectory(path: string): Promise<void>;
  /** Makes creations, renames and removals in `directory` durable. */
  syncDirectory(directory: string): Promise<void>;
  /**
   * Takes the exclusive lock of `path`, which is created if absent: an `fcntl` lock, which Java's `FileChannel.tryLock`
   * respects and which the operating system drops when the process dies. Never waits.
   * @throws FileError EBUSY when another process, or another call in this one, holds it; ENOTSUP when locks cannot be had
   */
  lock(path: string): Promise<FileLock>;
}

export interface FileLock {
  /** Idempotent. Leaves the file. */
  release(): Promise<void>;
}

export interface StatePut {
  readonly key: string;
  /** `undefined` removes the key. */
  readonly value: Uint8Array | undefined;
}

/**
 * A node's own small state (lmdb behind it): high watermarks, recovery points, topic configurations. Nothing whose loss
 * could break safety lives here.
 *
 * Crash rule: commits survive in order and whole. A crash of the process loses none that resolved. A crash of the machine
 * keeps all commits up to the last one that resolved with `sync: true`, and then some prefix of the later ones.
 */
export interface State {
  /** The committed value, a copy of the caller's own. */
  get(key: string): Uint8Array | undefined;
  /** Keys that begin with `prefix`, ascending by UTF-16 code units. */
  keys(prefix: string): readonly string[];
  /** Applies all puts or none. Commits take effect in the order of the calls. Resolves once `get` shows them (`sync`: once durable too). */
  commit(puts: readonly StatePut[], options: { readonly sync: boolean }): Promise<void>;
  /** Waits for commits in flight. Idempotent; later calls reject or throw. */
  close(): Promise<void>;
}

/** Codecs that compress. Kafka's names; "none" is not one of them. */
export type CodecName = "gzip" | "snappy" | "lz4" | "zstd";

/**
 * Compression libraries, native ones as a rule: streams and bare blocks, at once, on the calling thread. What they are given is framed,
 * bounded and checked by `wire`, which also knows what lies around a block. Results may lie in memory that the library keeps: copy
 * them before they are handed on.
 *
 * Every method throws WorkerError UNSUPPORTED_COMPRESSION_TYPE when its library does not load on this platform, and any error at all
 * when the input is none of the codec's. Those that take `outputBytesMax` throw WorkerError MESSAGE_TOO_LARGE past it unless they say
 * otherwise, and take no more memory than a few times that.
 */
export interface Codecs {
  /** One member. `level` 1 .. 9, undefined = the library's default. */
  compressGzip(payload: Uint8Array, level: number | undefined): Uint8Array;
  /** All members, one after another. */
  decompressGzip(payload: Uint8Array, outputBytesMax: number): Uint8Array;
  /** A bare block, with its length in front. */
  compressSnappyBlock(block: Uint8Array): Uint8Array;
  /** The caller has looked at the length in front, which is what room is made for. */
  decompressSnappyBlock(block: Uint8Array): Uint8Array;
  /** A bare block: what an LZ4 frame holds. */
  compressLz4Block(block: Uint8Array): Uint8Array;
  /** Any error past `outputBytesMax`: the frame says how large a block may be. */
  decompressLz4Block(block: Uint8Array, outputBytesMax: number): Uint8Array;
  /** One frame. `level` -131072 .. 22, undefined = 3. */
  compressZstd(payload: Uint8Array, level: number | undefined): Uint8Array;
  /** Exactly one frame, whole. */
  decompressZstdFrame(frame: Uint8Array, limits: ZstdFrameLimits): Uint8Array;
}

export interface ZstdFrameLimits {
  readonly outputBytesMax: number;
  /** The frame's own structure allows no more, which may be far more than it holds. */
  readonly frameBytesMax: number;
}

/** Work for the pool: names, inputs and outputs. */
export interface WorkerJobs {
  /** Compresses the records section of a batch. `level` undefined = the codec's default; the ranges are the codec's. */
  readonly compress: {
    readonly input: { readonly codec: CodecName; readonly payload: Uint8Array; readonly level: number | undefined };
    readonly output: Uint8Array;
  };
  /**
   * Decompresses. WorkerError MESSAGE_TOO_LARGE past `outputBytesMax`, CORRUPT_MESSAGE when the payload is none of the codec's,
   * UNSUPPORTED_COMPRESSION_TYPE when the codec cannot be had on this platform.
   */
  readonly decompress: {
    readonly input: { readonly codec: CodecName; readonly payload: Uint8Array; readonly outputBytesMax: number };
    readonly output: Uint8Array;
  };
  /**
   * Walks the records of a client's compressed batch, header included, as `validateRecords` of wire does, and gives what that does.
   * Besides the errors of `decompress`: WorkerError INVALID_RECORD, INVALID_TIMESTAMP.
   */
  readonly validate: {
    readonly input: { readonly payload: Uint8Array; readonly outputBytesMax: number };
    readonly output: { readonly maxTimestamp: number; readonly minTimestamp: number; readonly keylessCount: number };
  };
  /**
   * Walks the records of a client's batch as `validate` does, and gives the batch with its records as another codec compresses them;
   * `none`: not compressed. All errors of `validate` and `compress`.
   */
  readonly recompress: {
    readonly input: {
      readonly payload: Uint8Array;
      readonly codec: CodecName | "none";
      readonly level: number | undefined;
      /** Of the records, decompressed. */
      readonly outputBytesMax: number;
    };
    readonly output: {
      readonly batch: Uint8Array;
      readonly records: WorkerJobs["validate"]["output"];
    };
  };
  /** CRC-32C of the bytes. */
  readonly crc32c: { readonly input: { readonly payload: Uint8Array }; readonly output: number };
}

export type WorkerJobName = keyof WorkerJobs;

export interface WorkerPool {
  /**
   * Runs a job elsewhere; completions come in any order. Payload memory is handed over: the caller may not touch it afterwards.
   * More calls than there are threads wait in a queue of bounded length and bytes.
   * @throws WorkerError (see its codes); one failed job fails one call only
   */
  run<Name extends WorkerJobName>(name: Name, input: WorkerJobs[Name]["input"]): Promise<WorkerJobs[Name]["output"]>;
  /**
   * The same job at once, on this thread, holding up the event loop. The payload stays the caller's; outputs own their memory. Works on
   * a closed pool too.
   * @throws WorkerError as the job says
   */
  runNow<Name extends WorkerJobName>(name: Name, input: WorkerJobs[Name]["input"]): WorkerJobs[Name]["output"];
  /** Waits for jobs in flight. Idempotent; later calls of `run` reject with WorkerError CLOSED. */
  close(): Promise<void>;
}

export interface NetworkAddress {
  /** A name or an IP address. */
  readonly host: string;
  /** 0 where one listens: any free port. */
  readonly port: number;
}

/**
 * Streams between processes. Not a part of `Environment`: only what talks to peers is given one.
 */
export interface Network {
  /**
   * Accepts streams until closed. `onStream` is called with each new one and calls its `start` at once, or later.
   * @param address `host` default 127.0.0.1: nothing is open to other machines unless told so
   * @throws NetworkError EADDRINUSE, EADDRNOTAVAIL, EACCES, EHOSTUNREACH (no such host), EMFILE, EIO
   */
  listen(
    address: { readonly host?: string; readonly port: number },
    onStream: (stream: ByteStream) => void,
  ): Promise<NetworkListener>;
  /** @throws NetworkError ECONNREFUSED, ETIMEDOUT (also after `timeoutMs`), EHOSTUNREACH, ECONNRESET, EMFILE, EIO */
  connect(address: NetworkAddress, options: { readonly timeoutMs: number }): Promise<ByteStream>;
}

export interface NetworkListener {
  readonly host: string;
  /** The real one, also when any was asked for. */
  readonly port: number;
  /** No new streams, and the port is free once this resolves. Streams accepted before stay. Idempotent. */
  close(): Promise<void>;
}

export interface StreamHandlers {
  /**
   * Bytes in the order in which they were written, cut anywhere, at least one. Their memory is lent until the call returns: the next bytes
   * come into it.
   */
  onData(chunk: Uint8Array): void;
  /**
   * The stream is over, both ways. Called once, after the last `onData`, and not after the stream's own `destroy`.
   * @param error undefined when the other end has closed: no more comes, though not all that it wrote need have arrived
   */
  onEnd(error: NetworkError | undefined): void;
}

/**
 * An ordered stream of bytes, both ways, over one connection: TCP or a model of it. What has been written may be lost without a sign, when
 * the other end dies; a half-open stream (the machine over there is gone) looks like a silent one.
 */
export interface ByteStream {
  /** `host:port` of the other end. */
  readonly remote: string;
  /** Sets the handlers, once; nothing is delivered before. */
  start(handlers: StreamHandlers): void;
  /**
   * Sends the parts in order, behind those of earlier calls. Their memory is handed over: it is not changed until `whenSent` is called.
   *
   * Resolves when there is room for more, which says nothing of their arrival. A writer that waits for it holds little memory when the reader
   * is slow; one that does not wait queues without a bound.
   * @param whenSent called at most once, when nobody looks at the parts any more: they are sent, or never will be
   * @throws NetworkError ECONNRESET when the stream is over, CLOSED after `destroy`; then some of the parts may have arrived
   */
  write(parts: readonly Uint8Array[], whenSent?: () => void): Promise<void>;
  /** No `onData` and no `onEnd` until `resume`; the other end's writes run out of room. Idempotent. */
  pause(): void;
  /** Idempotent. */
  resume(): void;
  /** Ends both directions. What was not sent is lost. No handler is called any more. Idempotent. */
  destroy(): void;
}
