export { CheckpointError, decodeCheckpointLines, encodeCheckpointLines } from "./checkpoint-lines.ts";
export { UNDEFINED_EPOCH_END } from "./epoch-entry.ts";
export type { EpochEndOffset, EpochEntry } from "./epoch-entry.ts";
export { LeaderEpochCache } from "./leader-epoch-cache.ts";
export {
  decodeLeaderEpochCheckpoint,
  encodeLeaderEpochCheckpoint,
  LEADER_EPOCH_CHECKPOINT,
} from "./leader-epoch-checkpoint.ts";
export { LeaderEpochFileCache } from "./leader-epoch-file-cache.ts";
