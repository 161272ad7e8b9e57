import { median, planOf, simulate } from "@tidemark/simulation";
import type { Plan } from "@tidemark/simulation";
import { roundsWorkload } from "./rounds-workload.ts";
import type { OpenSubject, Workload } from "./workload.ts";

/** The same ones in every round, so that rounds compare. */
const SEEDS = 8;
const FIRST_SEED = 9;
/** A round takes some ten seconds. */
const ROUNDS_MAX = 5;
const QUIET_MS = 400_000;
const QUICK_MS = 10_000;

export function simulationWorkloads(): readonly Workload[] {
  return [
    roundsWorkload({
      name: "simulation",
      unit: "s/s",
      explanation:
        `Simulated seconds in a second of CPU time, the median of the seeds ${FIRST_SEED} to ${FIRST_SEED + SEEDS - 1}: as CI runs them, some ` +
        "thirteen minutes with 60 faults and 1,000 client operations each; and without faults, with one producer that sends now and then " +
        "(with --quick 10 s of one seed).",
      subjects: [
        { name: "tidemark, the standard profile", open: async (_, { quick }) => seedsOf(quick, planOf) },
        { name: "tidemark, idle", open: async (_, { quick }) => seedsOf(quick, idlePlanOf) },
      ],
      opensForEachSample: false,
      roundsMax: ROUNDS_MAX,
    }),
  ];
}

function seedsOf(quick: boolean, plannedOf: (seed: number) => Plan): OpenSubject {
  return {
    sample: async () => {
      const rates: number[] = [];
      for (let seed = FIRST_SEED; seed < FIRST_SEED + (quick ? 1 : SEEDS); seed += 1) {
        const plan = quick ? beginningOf(plannedOf(seed)) : plannedOf(seed);
        const before = process.cpuUsage();
        const { virtualMs, failure } = await simulate(seed, plan);
        const { user, system } = process.cpuUsage(before);
        if (failure !== undefined) throw new Error(`seed ${seed}: ${failure}`);
        rates.push((virtualMs * 1000) / (user + system));
      }
      return median(rates);
    },
    close: () => Promise.resolve(),
  };
}

function beginningOf(plan: Plan): Plan {
  return { ...plan, durationMs: QUICK_MS, faults: plan.faults.filter(({ atMs }) => atMs < QUICK_MS) };
}

/** What the seed's cluster costs where next to nothing happens. */
function idlePlanOf(seed: number): Plan {
  const { cluster, producers } = planOf(seed);
  return {
    cluster,
    durationMs: QUIET_MS,
    phases: [{ isQuiet: true, durationMs: QUIET_MS }],
    hasMessageFaults: false,
    producers: producers.slice(0, 1),
    faults: [],
  };
}
