import type { FlushMode } from "@tidemark/log";
import { open as openLmdb } from "lmdb";
import type { RootDatabase } from "lmdb";
import { join } from "node:path";
import type { PeerKind, PeerLog } from "./peer-log.ts";
import type { AppendOnlyLog, ClassicLevel, FlumeLog, Hypercore, PullStream, Sqlite } from "./peer-packages.ts";

const BOTH: readonly FlushMode[] = ["none", "always"];
const LARGE = { full: 600_000, quick: 50_000 };
const SMALL = { full: 50_000, quick: 3000 };

/** Keys only grow. */
const AT_THE_END = { append: true };

export type LmdbDatabase = RootDatabase<Buffer, number>;

/** A number as key, bytes as value: what a log would be in lmdb. */
export function openLmdbDatabase(directory: string, flush: FlushMode): LmdbDatabase {
  return openLmdb<Buffer, number>({
    path: join(directory, "lmdb"),
    noSubdir: false,
    encoding: "binary",
    keyEncoding: "uint32",
    mapSize: 2 ** 31,
    ...(flush === "none" ? { noSync: true } : {}),
  });
}

const LMDB: PeerKind = {
  name: "lmdb",
  batchName: "transactions",
  flushModes: BOTH,
  canFollow: false,
  storedMax: LARGE,
  open: async (directory, flush): Promise<PeerLog> => {
    const database = openLmdbDatabase(directory, flush);
    let count = 0;
    return {
      appendMany: (values) =>
        database.transactionSync(() => {
          for (const value of values) database.putSync(count++, value, AT_THE_END);
        }),
      appendOne: async (value) => {
        await database.put(count++, value);
        if (flush === "always") await database.flushed;
      },
      get: (sequence) => database.getBinary(sequence),
      scan: async (visit) => {
        for (const { value } of database.getRange()) if (!visit(value)) return;
      },
      close: () => database.close(),
    };
  },
};

const SQLITE: PeerKind = {
  name: "better-sqlite3",
  batchName: "transactions",
  flushModes: BOTH,
  canFollow: false,
  storedMax: LARGE,
  open: async (directory, flush, peers): Promise<PeerLog> => {
    const Database = (await peers.load("better-sqlite3")) as Sqlite;
    const database = new Database(join(directory, "log.db"));
    database.pragma("journal_mode = WAL");
    database.pragma(`synchronous = ${flush === "none" ? "OFF" : "FULL"}`);
    database.exec("CREATE TABLE log (sequence INTEGER PRIMARY KEY, value BLOB NOT NULL)");
    const insert = database.prepare("INSERT INTO log VALUES (?, ?)");
    const select = database.prepare("SELECT value FROM log WHERE sequence = ?").pluck();
    const selectAll = database.prepare("SELECT value FROM log ORDER BY sequence").pluck();
    let count = 0;
    return {
      appendMany: database.transaction((values: readonly Buffer[]) => {
        for (const value of values) insert.run(count++, value);
      }),
      appendOne: (value) => void insert.run(count++, value),
      get: (sequence) => select.get(sequence),
      scan: async (visit) => {
        for (const value of selectAll.iterate()) if (!visit(value)) return;
      },
      close: async () => void database.close(),
    };
  },
};

const LEVEL_KEY_BYTES = 4;

function levelKey(sequence: number): Buffer {
  const key = Buffer.allocUnsafe(LEVEL_KEY_BYTES);
  key.writeUInt32BE(sequence);
  return key;
}

const LEVEL: PeerKind = {
  name: "classic-level",
  batchName: "batches",
  flushModes: BOTH,
  canFollow: false,
  storedMax: LARGE,
  open: async (directory, flush, peers): Promise<PeerLog> => {
    const { ClassicLevel: Level } = (await peers.load("classic-level")) as ClassicLevel;
    const database = new Level(join(directory, "level"), { keyEncoding: "buffer", valueEncoding: "buffer" });
    await database.open();
    const options = { sync: flush === "always" };
    let count = 0;
    return {
      appendMany: (values) =>
        database.batch(
          values.map((value) => ({ type: "put", key: levelKey(count++), value })),
          options,
        ),
      appendOne: (value) => database.put(levelKey(count++), value, options),
      get: (sequence) => database.getSync(levelKey(sequence)),
      scan: async (visit) => {
        const iterator = database.values();
        try {
          for (;;) {
            const values = await iterator.nextv(1000);
            if (values.length === 0 || !values.every((value) => visit(value))) return;
          }
        } finally {
          await iterator.close();
        }
      },
      close: () => database.close(),
    };
  },
};

const HYPERCORE: PeerKind = {
  name: "hypercore",
  batchName: "arrays",
  flushModes: ["none"],
  canFollow: true,
  storedMax: SMALL,
  open: async (directory, _flush, peers): Promise<PeerLog> => {
    const Core = (await peers.load("hypercore")) as Hypercore;
    const core = new Core(join(directory, "core"));
    await core.ready();
    return {
      appendMany: async (values) => void (await core.append(values)),
      appendOne: async (value) => void (await core.append(value)),
      get: (sequence) => core.get(sequence),
      scan: async (visit) => {
        for await (const value of core.createReadStream()) if (!visit(value)) return;
      },
      follow: (visit) => {
        const stream = core.createReadStream({ start: core.length, live: true });
        stream.on("data", visit);
        stream.on("error", () => undefined); // Of its end.
        return () => stream.destroy();
      },
      close: () => core.close(),
    };
  },
};

const FLUMELOG: PeerKind = {
  name: "flumelog-offset",
  batchName: "arrays",
  flushModes: ["none"],
  canFollow: true,
  storedMax: LARGE,
  open: async (directory, _flush, peers): Promise<PeerLog> => {
    const createLog = (await peers.load("flumelog-offset")) as FlumeLog;
    const pull = (await peers.load("pull-stream")) as PullStream;
    const log = createLog(join(directory, "log"), { blockSize: 64 * 1024 });
    const append = (data: Buffer | readonly Buffer[]): Promise<void> =>
      new Promise((resolve, reject) => log.append(data, (error) => (error ? reject(error) : resolve())));
    let positions: number[] = [];
    return {
      appendMany: append,
      appendOne: append,
      prepareGets: async () => {
        positions = [];
        await new Promise<void>((resolve, reject) => {
          const sink = pull.drain(
            (entry) => void positions.push((entry as { readonly seq: number }).seq),
            (error) => (error instanceof Error ? reject(error) : resolve()),
          );
          pull(log.stream({}), sink);
        });
      },
      get: (sequence) =>
        new Promise((resolve, reject) =>
          log.get(positions[sequence] ?? 0, (error, value) => (error ? reject(error) : resolve(value))),
        ),
      scan: (visit) =>
        new Promise((resolve, reject) => {
          const sink = pull.drain(
            (value) => visit(value as Buffer),
            (error) => (error instanceof Error ? reject(error) : resolve()),
          );
          pull(log.stream({ seqs: false }), sink);
        }),
      follow: (visit) => {
        const sink = pull.drain(
          (value) => visit(value as Buffer),
          () => undefined,
        );
        pull(log.stream({ seqs: false, live: true, gt: log.since.value ?? -1 }), sink);
        return () => sink.abort();
      },
      close: async () => undefined, // It has no close.
    };
  },
};

const APPEND_ONLY_LOG: PeerKind = {
  name: "async-append-only-log",
  batchName: "arrays",
  // It syncs each block that it writes, asked or not.
  flushModes: BOTH,
  canFollow: true,
  storedMax: LARGE,
  open: async (directory, _flush, peers): Promise<PeerLog> => {
    const createLog = (await peers.load("async-append-only-log")) as AppendOnlyLog;
    const log = createLog(join(directory, "log"), { writeTimeout: 1 });
    const append = (data: Buffer | readonly Buffer[]): Promise<void> =>
      new Promise((resolve, reject) => log.append(data as Buffer, (error) => (error ? reject(error) : resolve())));
    const drained = (): Promise<void> => new Promise((resolve) => log.onDrain(resolve));
    const appended = async (data: Buffer | readonly Buffer[]): Promise<void> => {
      await append(data);
      await drained(); // Before it nothing is written.
    };
    let positions: number[] = [];
    return {
      appendMany: appended,
      appendOne: appended,
      prepareGets: async () => {
        positions = [];
        await new Promise<void>((resolve) =>
          log.stream({ offsets: true, values: false }).pipe({
            paused: false,
            write: (offset) => void positions.push(offset as unknown as number),
            end: () => resolve(),
          }),
        );
      },
      get: (sequence) =>
        new Promise((resolve, reject) =>
          log.get(positions[sequence] ?? 0, (error, value) => (error ? reject(error) : resolve(value))),
        ),
      scan: (visit) =>
        new Promise((resolve) => {
          const sink = {
            paused: false,
            write: (value: Buffer) => {
              if (sink.paused || visit(value)) return;
              sink.paused = true;
              resolve();
            },
            end: () => resolve(),
          };
          log.stream({ offsets: false }).pipe(sink);
        }),
      follow: (visit) => {
        let isOver = false;
        const write = (value: Buffer): void => {
          if (!isOver) visit(value);
        };
        const sink = { paused: false, write, end: () => undefined };
        log.stream({ offsets: false, live: true, gt: log.since.value ?? -1 }).pipe(sink);
        return () => {
          isOver = true;
          sink.paused = true;
        };
      },
      // Left open: its close may close the file under a sync that is under way, which then throws where nobody can catch it.
      close: drained,
    };
  },
};

/** Those of the installation apart. */
const INSTALLED_KINDS: readonly PeerKind[] = [SQLITE, LEVEL, HYPERCORE, FLUMELOG, APPEND_ONLY_LOG];

/** Other ways to keep values in order, from Node. */
export const PEER_KINDS: readonly PeerKind[] = [LMDB, ...INSTALLED_KINDS];
