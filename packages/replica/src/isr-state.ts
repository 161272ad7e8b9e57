/**
 * The ISR as its leader knows it. At most one change is under way:
 *
 * | from | to | when |
 * |---|---|---|
 * | committed | pendingExpand, pendingShrink | the leader proposes it to the controller |
 * | pending | committed | the controller accepted it, or surely did not, or a newer partition epoch says what holds |
 *
 * `isr` is the committed one: it decides min ISR before an append and whether HW may move. An expansion that may
 * already be in force must already hold HW back, and a shrink that may have failed must not let it go: that is the
 * maximal ISR.
 * Source: apache/kafka server/src/main/java/org/apache/kafka/server/partition/PartitionState.java and its siblings.
 */
export type IsrState =
  | { readonly type: "committed"; readonly isr: readonly number[] }
  | { readonly type: "pendingExpand"; readonly isr: readonly number[]; readonly adding: number }
  | { readonly type: "pendingShrink"; readonly isr: readonly number[]; readonly removing: readonly number[] };

/** Every broker that may be in the ISR at this moment, whichever way the pending change went. */
export function maximalIsr(state: IsrState): readonly number[] {
  return state.type === "pendingExpand" ? [...state.isr, state.adding] : state.isr;
}

/** The ISR that a pending change asks for; the committed one if none is pending. */
export function proposedIsr(state: IsrState): readonly number[] {
  return state.type === "pendingShrink"
    ? state.isr.filter((brokerId) => !state.removing.includes(brokerId))
    : maximalIsr(state);
}

/** Whether a controller's word makes sense: a duplicate-free part of the assignment that contains the leader. */
export function isIsrOf(isr: readonly number[], leader: number, replicas: readonly number[]): boolean {
  return (
    isr.includes(leader) && new Set(isr).size === isr.length && isr.every((brokerId) => replicas.includes(brokerId))
  );
}
