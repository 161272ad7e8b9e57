/**
 * What a crash of the machine does to pending operations. State commits keep their own rule in all of them: some prefix survives.
 *
 * - `ordered-prefix`: one cut through all operations; what came before it survives.
 * - `per-file-prefix`: a prefix for each file and for each directory, on their own.
 * - `any-subset`: each operation survives or not.
 * - `block-subset`: as `any-subset`, writes cut into sectors; a sector survives, is lost, or is damaged as `sectorDamage` says.
 * - `torn-write`: the last write, if it is the last operation, is cut at some byte, short or filled up with zeros; the others all
 *   survive or are all lost.
 * - `size-before-data`: of each file a prefix survives, and its size from a longer one: the difference reads as zeros.
 * - `missing-directory-entry`: all contents survive, of the changes of names any subset.
 */
export type LossRule = (typeof LOSS_RULES)[number];

export const LOSS_RULES = [
  "ordered-prefix",
  "per-file-prefix",
  "any-subset",
  "block-subset",
  "torn-write",
  "size-before-data",
  "missing-directory-entry",
] as const;

export interface EnumerationLimits {
  /** Outcomes tried a crash point and rule: all of them if they are no more, else all-lost, all-kept and a seeded sample. Default 4096. */
  readonly outcomesMax?: number;
  /** For `block-subset`. Default 512. */
  readonly sectorBytes?: number;
  /**
   * What may also become of a sector in `block-subset`: only a left part of it survives (`torn`), or behind that part comes
   * garbage, which no port promises to spare anybody but which disks have been seen to do (`garbage`). Default `torn`.
   */
  readonly sectorDamage?: "none" | "torn" | "garbage";
  /** Cuts of a torn write: every byte if there are no more, else the borders below and a seeded sample. Default: every byte. */
  readonly tornCutsMax?: number;
  /**
   * What becomes of the rest at each cut: `all`, the other pending operations survive or are lost, and the write is short or filled
   * up with zeros; `short`, the others survive and the write is short. Default `all`.
   */
  readonly tornVariants?: "all" | "short";
  /** Positions in a write that are always among the cuts: borders of the format. */
  readonly tornBorders?: readonly number[];
  /** For the samples. Default 0. */
  readonly seed?: number;
}

export type ResolvedLimits = Required<EnumerationLimits>;
