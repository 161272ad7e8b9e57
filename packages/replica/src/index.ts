export { FETCH_BACKOFF_MS, FollowerState } from "./follower-state.ts";
export type {
  FollowerEffect,
  FollowerInput,
  FollowerPhase,
  FollowerRequest,
  FollowerStart,
  LogFacts,
  TruncationCause,
} from "./follower-state.ts";
export { checkDivergence, truncationPoint } from "./truncation.ts";
export type { DivergenceCheck, EpochAnswer, TruncationPoint } from "./truncation.ts";
