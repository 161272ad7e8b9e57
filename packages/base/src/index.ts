export { BufferPool, POOL_BYTES_MAX } from "./buffer-pool.ts";
export type {
  ByteStream,
  Clock,
  CodecName,
  Codecs,
  Environment,
  FileHandle,
  FileLock,
  FileSystem,
  Network,
  NetworkAddress,
  NetworkListener,
  OpenMode,
  Random,
  State,
  StatePut,
  StreamHandlers,
  Timer,
  WorkerJobName,
  WorkerJobs,
  WorkerPool,
  ZstdFrameLimits,
} from "./environment.ts";
export { FileError, WorkerError } from "./errors.ts";
export type { FileErrorCode, FileOperation, WorkerErrorCode } from "./errors.ts";
export {
  directoryOf,
  isDirectory,
  joinPath,
  readFileIfPresent,
  readFully,
  writeFileAtomically,
  writeFully,
} from "./file-io.ts";
export { fail, InvariantError } from "./invariant.ts";
export { NetworkError } from "./network-error.ts";
export type { NetworkErrorCode, NetworkOperation } from "./network-error.ts";
export { LEADER_EPOCH_MAX, parseLeaderEpoch, parseOffset, toLeaderEpoch, toOffset } from "./offset.ts";
export type { LeaderEpoch, Offset } from "./offset.ts";
export { decodeUtf8, encodeUtf8, parseUtf8 } from "./text.ts";
