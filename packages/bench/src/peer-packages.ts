/** The parts of the peers' APIs that are used here. They are not among our dependencies, so that their own types are not here. */

export type Sqlite = new (path: string) => {
  pragma(text: string): unknown;
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
  transaction(run: (values: readonly Buffer[]) => void): (values: readonly Buffer[]) => void;
  close(): unknown;
};

interface SqliteStatement {
  run(...values: unknown[]): unknown;
  get(...values: unknown[]): Buffer | undefined;
  iterate(): Iterable<Buffer>;
  pluck(): this;
}

export interface ClassicLevel {
  readonly ClassicLevel: new (
    path: string,
    options: { readonly keyEncoding: "buffer"; readonly valueEncoding: "buffer" },
  ) => {
    open(): Promise<void>;
    put(key: Buffer, value: Buffer, options: { readonly sync: boolean }): Promise<void>;
    batch(operations: readonly object[], options: { readonly sync: boolean }): Promise<void>;
    getSync(key: Buffer): Buffer | undefined;
    values(): { nextv(count: number): Promise<Buffer[]>; close(): Promise<void> };
    close(): Promise<void>;
  };
}

export type Hypercore = new (directory: string) => {
  readonly length: number;
  ready(): Promise<void>;
  append(values: Buffer | readonly Buffer[]): Promise<unknown>;
  get(index: number): Promise<Buffer>;
  createReadStream(options?: { readonly start: number; readonly live: boolean }): AsyncIterable<Buffer> & {
    on(event: string, listener: (value: Buffer) => void): unknown;
    destroy(): void;
  };
  close(): Promise<void>;
};

type Callback<Value> = (error: Error | null | undefined, value: Value) => void;

export type FlumeLog = (
  path: string,
  options: { readonly blockSize: number },
) => {
  readonly since: { readonly value: number | undefined };
  append(data: Buffer | readonly Buffer[], callback: Callback<number>): void;
  get(position: number, callback: Callback<Buffer>): void;
  stream(options: { readonly seqs?: boolean; readonly live?: boolean; readonly gt?: number }): unknown;
};

export interface PullStream {
  (source: unknown, sink: unknown): void;
  /** Takes values until `visit` answers false. */
  drain(visit: (value: unknown) => unknown, done: (error: unknown) => void): { abort(): void };
}

export type AppendOnlyLog = (
  path: string,
  options: { readonly writeTimeout: number },
) => {
  readonly since: { readonly value: number | undefined };
  append(data: Buffer, callback: Callback<number>): void;
  onDrain(done: () => void): void;
  get(offset: number, callback: Callback<Buffer>): void;
  stream(options: {
    readonly offsets: boolean;
    readonly values?: boolean;
    readonly live?: boolean;
    readonly gt?: number;
  }): { pipe(sink: { paused: boolean; write: (value: Buffer) => void; end: () => void }): void };
};
