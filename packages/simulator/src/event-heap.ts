export interface KernelEvent {
  readonly atUs: number;
  /** Breaks ties of `atUs`, lower first; then `insertion` does. */
  readonly priority: number;
  readonly insertion: number;
  readonly label: string;
  /** Undefined once cancelled or run. */
  fire: (() => void) | undefined;
}

/** Binary heap of events by (time, priority, insertion). O(log n) a call. */
export class EventHeap {
  readonly #events: KernelEvent[] = [];

  /** Without those that were cancelled. O(n). */
  get pendingCount(): number {
    return this.#events.reduce((count, event) => count + (event.fire === undefined ? 0 : 1), 0);
  }

  push(event: KernelEvent): void {
    const events = this.#events;
    let index = events.length;
    events.push(event);
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = events[parentIndex];
      if (parent === undefined || !isBefore(event, parent)) break;
      events[index] = parent;
      index = parentIndex;
    }
    events[index] = event;
  }

  pop(): KernelEvent | undefined {
    const events = this.#events;
    const first = events[0];
    const last = events.pop();
    if (first === undefined || last === undefined || first === last) return first;
    let index = 0;
    for (;;) {
      const child = this.#earlierChild(index);
      if (child === undefined || !isBefore(child.event, last)) break;
      events[index] = child.event;
      index = child.index;
    }
    events[index] = last;
    return first;
  }

  #earlierChild(index: number): { readonly event: KernelEvent; readonly index: number } | undefined {
    const left = this.#events[2 * index + 1];
    const right = this.#events[2 * index + 2];
    if (left === undefined) return undefined;
    if (right !== undefined && isBefore(right, left)) return { event: right, index: 2 * index + 2 };
    return { event: left, index: 2 * index + 1 };
  }
}

function isBefore(a: KernelEvent, b: KernelEvent): boolean {
  if (a.atUs !== b.atUs) return a.atUs < b.atUs;
  if (a.priority !== b.priority) return a.priority < b.priority;
  return a.insertion < b.insertion;
}
