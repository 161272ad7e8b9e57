import type { Workload } from "./workload.ts";

export interface Selected {
  readonly workload: Workload;
  readonly includes: (subject: string) => boolean;
}

/**
 * The workloads that have something to measure. A pattern in a workload's name takes all of it; in the name of a subject, that
 * subject and the peers it is compared with.
 * @param pattern lower case; `undefined` takes all
 */
export function select(workloads: readonly Workload[], pattern: string | undefined): Selected[] {
  if (pattern === undefined) return workloads.map((workload) => ({ workload, includes: () => true }));
  return workloads.flatMap((workload): Selected[] => {
    if (workload.name.toLowerCase().includes(pattern)) return [{ workload, includes: () => true }];
    const named = workload.subjects.filter((subject) => subject.toLowerCase().includes(pattern));
    if (named.length === 0) return [];
    const wanted = new Set(named);
    for (const { subjectFor } of workload.peers) {
      for (const subject of named) wanted.add(subjectFor(subject) ?? subject);
    }
    return [{ workload, includes: (subject) => wanted.has(subject) }];
  });
}
