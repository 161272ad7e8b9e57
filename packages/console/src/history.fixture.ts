import type { HistoryStep, RecordedHistory, ReplicaView } from "./recorded-history.ts";

/** A replica that leads, with one epoch. */
function replicaWith(change: Partial<ReplicaView>): ReplicaView {
  const logEndOffset = change.logEndOffset ?? 0;
  return {
    process: "up",
    role: "leader",
    leader: 1,
    leaderEpoch: 0,
    logStartOffset: 0,
    highWatermark: logEndOffset,
    flushedEndOffset: 0,
    logEndOffset,
    isr: [1],
    ranges: logEndOffset === 0 ? [] : [[0, logEndOffset, 0]],
    values: [],
    ...change,
  };
}

/** A history of one broker that appends once a step. */
export function historyOf(stepCount: number, change: Partial<RecordedHistory> = {}): RecordedHistory {
  const steps = Array.from({ length: stepCount }, (_, at): HistoryStep => {
    const isWeighty = at % 100 === 50;
    return {
      timeUs: at * 1000,
      kind: isWeighty ? "fault" : "append",
      text: `step ${at}`,
      replicas: { 1: replicaWith({ logEndOffset: at }) },
      ...(at === 0 ? { controller: { isUp: true, leader: 1, leaderEpoch: 0, isr: [1] } } : {}),
    };
  });
  return {
    title: "a title",
    summary: "a summary",
    seed: 1,
    command: "a command",
    facts: [["brokers", "1"]],
    brokers: [1],
    controllerId: 100,
    clientId: 0,
    steps,
    violations: [],
    omitted: "",
    ...change,
  };
}

/** What the history in a page is. @throws Error when there is none */
export function historyIn(page: string): RecordedHistory {
  const [, json] = /<script type="application\/json" id="history">(.*?)<\/script>/su.exec(page) ?? [];
  if (json === undefined) throw new Error("no history in the page");
  return JSON.parse(json) as RecordedHistory;
}
