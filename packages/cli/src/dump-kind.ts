export interface DumpOptions {
  /** Also each record of a segment. */
  readonly records: boolean;
}

/** Prints one kind of file line by line. @returns how many things in it are wrong */
export type Dump = (path: string, print: Print, options: DumpOptions) => Promise<number>;
/** Awaits when the reader of standard output is slow. False = it is gone. */
export type Print = (line: string) => Promise<boolean>;
