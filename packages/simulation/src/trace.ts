import type { HistoryStep, RecordedHistory, ReplicaView } from "@tidemark/console";

/** What the columns of a trace mean. */
export const TRACE_LEGEND: readonly string[] = [
  "time in virtual seconds, what kind of step, what happened; then what changed:",
  "  1:L5 [0 7 9 9] isr 1,2   broker 1 leads in epoch 5; log start 0, HW 7, flushed end 9, LEO 9; its ISR",
  "  2:F5 [0 7 8 9]           broker 2 follows in epoch 5",
  "  3:-  down                broker 3 has no role; up, starting, paused or down",
  "  C 1/5 isr 1,2            the controller: leader, epoch, ISR",
];

/** One line a step. */
export function traceOf(history: RecordedHistory): readonly string[] {
  return history.steps.map((step) => {
    const parts = [
      (step.timeUs / 1e6).toFixed(6).padStart(12),
      step.kind.padEnd(13),
      step.text.replaceAll("\n", " "),
      ...Object.entries(step.replicas ?? {}).map(([brokerId, replica]) => wordsOf(brokerId, replica)),
      ...controllerOf(step),
    ];
    return parts.join("  ");
  });
}

function wordsOf(brokerId: string, replica: ReplicaView): string {
  if (replica.process !== "up") return `${brokerId}:- ${replica.process}`;
  const role = { leader: "L", follower: "F", none: "-", failed: "X" }[replica.role];
  const { logStartOffset, highWatermark, flushedEndOffset, logEndOffset, isr } = replica;
  const log = `[${logStartOffset} ${highWatermark} ${flushedEndOffset} ${logEndOffset}]`;
  return `${brokerId}:${role}${replica.leaderEpoch} ${log}${isr.length > 0 ? ` isr ${isr.join(",")}` : ""}`;
}

function controllerOf({ controller }: HistoryStep): readonly string[] {
  if (controller === undefined) return [];
  return [
    controller.isUp ? `C ${controller.leader}/${controller.leaderEpoch} isr ${controller.isr.join(",")}` : "C down",
  ];
}
