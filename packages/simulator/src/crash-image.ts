import { fail } from "@tidemark/base";
import { planLoss } from "./loss-plan.ts";
import type { LossPlan } from "./loss-plan.ts";
import type { EnumerationLimits, LossRule, ResolvedLimits } from "./loss-rule.ts";
import type { CrashPoint } from "./operation-log.ts";
import { SimulatedRandom } from "./random.ts";
import { DiskImage } from "./volume.ts";

const OUTCOMES_MAX_DEFAULT = 4_096;
const SECTOR_BYTES_DEFAULT = 512;

/**
 * The distinct images (by digest) that a crash of the machine at `point` can leave under `rule`.
 * The same point, rule and limits give the same images in the same order.
 */
export function* enumerateCrashImages(
  point: CrashPoint,
  rule: LossRule,
  limits: EnumerationLimits = {},
): Generator<DiskImage, void, undefined> {
  const resolved = resolveLimits(limits);
  const plan = planLoss(point, rule, resolved);
  const seen = new Set<string>();
  for (const choices of choicesOf(plan, resolved, `crash/${rule}/${point.number}`)) {
    const image = new DiskImage(plan.build(choices));
    if (seen.has(image.digest)) continue;
    seen.add(image.digest);
    yield image;
  }
}

/** One outcome, drawn uniformly from those that `enumerateCrashImages` would try. */
export function drawCrashImage(
  point: CrashPoint,
  rule: LossRule,
  random: SimulatedRandom,
  limits: EnumerationLimits = {},
): DiskImage {
  const plan = planLoss(point, rule, resolveLimits(limits));
  return new DiskImage(plan.build(plan.radices.map((radix) => random.below(`crash/${rule}`, radix))));
}

function resolveLimits(limits: EnumerationLimits): ResolvedLimits {
  return {
    outcomesMax: limits.outcomesMax ?? OUTCOMES_MAX_DEFAULT,
    sectorBytes: limits.sectorBytes ?? SECTOR_BYTES_DEFAULT,
    sectorDamage: limits.sectorDamage ?? "torn",
    tornCutsMax: limits.tornCutsMax ?? Number.POSITIVE_INFINITY,
    tornVariants: limits.tornVariants ?? "all",
    tornBorders: limits.tornBorders ?? [],
    seed: limits.seed ?? 0,
  };
}

/** All vectors of choices, last position fastest; or a sample of them. */
function* choicesOf(plan: LossPlan, limits: ResolvedLimits, site: string): Generator<number[], void, undefined> {
  const { radices } = plan;
  if (radices.some((radix) => radix < 1)) fail("every choice has an outcome", { radices });
  let count = 1;
  for (const radix of radices) count *= radix;
  if (count <= limits.outcomesMax) {
    yield* odometer(radices);
    return;
  }
  yield radices.map(() => 0);
  yield radices.map((radix) => radix - 1);
  const random = new SimulatedRandom(limits.seed);
  for (let drawn = 2; drawn < limits.outcomesMax; drawn++) yield radices.map((radix) => random.below(site, radix));
}

function* odometer(radices: readonly number[]): Generator<number[], void, undefined> {
  const choices = radices.map(() => 0);
  for (;;) {
    yield [...choices];
    let position = choices.length - 1;
    while (position >= 0 && (choices[position] ?? 0) + 1 >= (radices[position] ?? 0)) choices[position--] = 0;
    if (position < 0) return;
    choices[position] = (choices[position] ?? 0) + 1;
  }
}
