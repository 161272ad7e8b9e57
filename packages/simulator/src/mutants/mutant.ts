/** One place of the production source, and what stands there in the mutant. */
export interface MutantEdit {
  /** Path from the root of the repository. */
  readonly file: string;
  /** Must be found exactly once. */
  readonly find: string;
  readonly replace: string;
}

/**
 * A deliberate bug, which the tests have to notice. It stands beside the simulator, is applied to the source as it is loaded, and
 * never stands in the source itself.
 */
export interface Mutant {
  readonly id: string;
  readonly title: string;
  readonly edits: readonly MutantEdit[];
}

/** Applies a mutant to the files that it names, one by one as they are loaded, and knows whether all of it was. */
export class MutantApplication {
  readonly mutant: Mutant;
  readonly #applied = new Set<MutantEdit>();

  constructor(mutant: Mutant) {
    this.mutant = mutant;
  }

  /**
   * The source with the edits of its file, or `undefined` when none is for it.
   * @param path absolute or from the root of the repository
   * @throws Error when the place of an edit is gone, or is there more than once: the mutant would test nothing
   */
  apply(path: string, source: string): string | undefined {
    const edits = this.mutant.edits.filter(({ file }) => path === file || path.endsWith(`/${file}`));
    if (edits.length === 0) return undefined;
    let edited = source;
    for (const edit of edits) {
      const places = edited.split(edit.find).length - 1;
      if (places !== 1)
        throw new Error(`mutant ${this.mutant.id}: its place in ${edit.file} is there ${places} times: ${edit.find}`);
      // A function: a replacement text would have patterns of its own.
      edited = edited.replace(edit.find, () => edit.replace);
      this.#applied.add(edit);
    }
    return edited;
  }

  /** @throws Error when a file that it edits was never loaded */
  assertComplete(): void {
    const missing = this.mutant.edits.find((edit) => !this.#applied.has(edit));
    if (missing !== undefined) throw new Error(`mutant ${this.mutant.id}: ${missing.file} was not loaded`);
  }
}
