export type {
  ControllerView,
  EpochRange,
  HistoryMessage,
  HistoryStep,
  HistoryViolation,
  RecordedHistory,
  ReplicaView,
  StepKind,
} from "./recorded-history.ts";
export { renderHistory } from "./render-history.ts";
export { COARSE_STEPS_MAX, DETAILED_STEPS_MAX, shortenHistory } from "./shorten-history.ts";
