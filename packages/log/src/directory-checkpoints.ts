import { encodeUtf8, joinPath, parseUtf8, writeFileAtomically } from "@tidemark/base";
import type { FileSystem, State, StatePut } from "@tidemark/base";
import { crc32c } from "@tidemark/wire";
import { GAPLESS_PREFIX, SEAL_PREFIX } from "./log-state.ts";
import {
  CLEANER_CHECKPOINT,
  encodeOffsetCheckpoint,
  LOG_START_CHECKPOINT,
  readOffsetCheckpoint,
  RECOVERY_POINT_CHECKPOINT,
  REPLICATION_CHECKPOINT,
} from "./offset-checkpoint.ts";
import type { OffsetCheckpointContent, OffsetCheckpointEntry } from "./offset-checkpoint.ts";
import { putStateOffset, stateOffsetPrefix } from "./state-values.ts";
import type { StateOffsetName } from "./state-values.ts";

const CHECKPOINT_FILES = [
  RECOVERY_POINT_CHECKPOINT,
  LOG_START_CHECKPOINT,
  REPLICATION_CHECKPOINT,
  CLEANER_CHECKPOINT,
] as const;
type CheckpointFile = (typeof CHECKPOINT_FILES)[number];

/** What the offsets of each file are called in `State` while we hold the directory. */
const STATE_NAME: Readonly<Record<CheckpointFile, StateOffsetName>> = {
  [RECOVERY_POINT_CHECKPOINT]: "recovery-point",
  [LOG_START_CHECKPOINT]: "log-start",
  [REPLICATION_CHECKPOINT]: "high-watermark",
  [CLEANER_CHECKPOINT]: "cleaner-offset",
};

/** What must not be believed of a directory that we left by a crash: it would be too high after a truncation, or after lost writes. */
const EMPTY_WHILE_HELD = [RECOVERY_POINT_CHECKPOINT, CLEANER_CHECKPOINT] as const;

/** Everything that `State` knows of a partition by its name. Keys of `segment-gap/` go on behind the name. */
const PARTITION_KEY_PREFIXES = [
  ...Object.values(STATE_NAME).map(stateOffsetPrefix),
  "segment-gap/",
  "segment-swap/",
  SEAL_PREFIX,
  GAPLESS_PREFIX,
  "leader-epoch/",
];

/** Prints of the text files as we last wrote or took them over; two for a file whose replacement may or may not have happened. */
const PRINTS_KEY = "log-directory/checkpoint-prints";
const DIRECTORY_ID_KEY = "log-directory/directory-id";
export const PRODUCER_ID_KEY = "producer-id";

/** There from when the files win until all partitions were opened: what another program left out of their logs is noted then. */
const TAKEOVER_KEY = "log-directory/takeover";

const ABSENT_PRINT = "absent";

/** What a clean stop notes of all logs of a directory. */
export interface DirectoryOffsets {
  readonly recoveryPoints: readonly OffsetCheckpointEntry[];
  readonly logStarts: readonly OffsetCheckpointEntry[];
  readonly highWatermarks: readonly OffsetCheckpointEntry[];
  /** Of those that were ever compacted. */
  readonly cleanerOffsets: readonly OffsetCheckpointEntry[];
}

export interface CheckpointReport {
  /** `files`: another program wrote them since, or `State` is new; `state`: they are as we left them. */
  readonly source: "files" | "state";
  /** Files that were no checkpoints and counted as empty. */
  readonly problems: readonly string[];
}

/**
 * The directory-wide checkpoint files of Kafka, next to the same offsets in `State`.
 *
 * While we hold a directory its recovery-point and cleaner files are empty, so that a broker that finds it after our crash scans and
 * compacts everything; a clean stop writes all four files. `State` remembers a print of each. If one differs at the next open,
 * another program ran here in between and the files win.
 *
 * Every replacement is announced first: `State` accepts the old print and the new one until the file is in place. So no
 * crash makes our own write look like another program's, which would cost a full scan.
 */
export class DirectoryCheckpoints {
  readonly #files: FileSystem;
  readonly #state: State;
  readonly #directory: string;
  readonly #prints: Map<CheckpointFile, readonly string[]>;

  private constructor(
    files: FileSystem,
    state: State,
    directory: string,
    prints: Map<CheckpointFile, readonly string[]>,
  ) {
    this.#files = files;
    this.#state = state;
    this.#directory = directory;
    this.#prints = prints;
  }

  /**
   * Decides who is right, brings `State` in line with it, and empties the files that are to be empty meanwhile.
   * @throws FileError
   */
  static async open(
    files: FileSystem,
    state: State,
    directory: string,
    directoryId: string,
  ): Promise<{
    readonly checkpoints: DirectoryCheckpoints;
    readonly report: CheckpointReport;
    /** Whether `State` speaks of logs that another program wrote, and does not know yet where they rightly leave offsets out. */
    readonly isTakingOver: boolean;
  }> {
    // A process that died in the middle of a replacement may have left it to the page cache only. Now that its print becomes the one
    // that is accepted, the file before it must not come back.
    await files.syncDirectory(directory);
    const contents = new Map<CheckpointFile, OffsetCheckpointContent>();
    for (const name of CHECKPOINT_FILES)
      contents.set(name, await readOffsetCheckpoint(files, joinPath(directory, name)));
    const known = readPrints(state);
    const isOurs = readText(state, DIRECTORY_ID_KEY) === directoryId;
    const areAsLeft = [...contents].every(([name, { bytes }]) => isAsKnown(known, name, bytes));
    const prints = new Map([...contents].map(([name, { bytes }]) => [name, [fingerprint(bytes)]] as const));
    const checkpoints = new DirectoryCheckpoints(files, state, directory, prints);
    const problems = [...contents.values()].flatMap(({ problem }) => problem ?? []);
    if (!(isOurs && areAsLeft)) {
      await state.commit(
        [
          ...takeOver(state, contents),
          { key: DIRECTORY_ID_KEY, value: encodeUtf8(directoryId) },
          // Another program hands out producer ids too: ours begin elsewhere.
          { key: PRODUCER_ID_KEY, value: undefined },
          // A new directory has no logs.
          ...([...contents.values()].some(({ bytes }) => bytes !== undefined)
            ? [{ key: TAKEOVER_KEY, value: new Uint8Array(0) }]
            : []),
          { key: PRINTS_KEY, value: encodePrints(prints) },
        ],
        { sync: true },
      );
    }
    for (const name of EMPTY_WHILE_HELD) {
      if ((contents.get(name)?.entries.length ?? 0) > 0 || contents.get(name)?.problem !== undefined)
        await checkpoints.#replace(name, encodeOffsetCheckpoint([]));
    }
    const report = { source: isOurs && areAsLeft ? "state" : "files", problems } as const;
    return { checkpoints, report, isTakingOver: report.source === "files" || isTakingOver(state) };
  }

  /** All partitions were opened. A crash before it is known again costs nothing but belief in holes that are noted already. @throws FileError */
  async finishTakeover(): Promise<void> {
    if (isTakingOver(this.#state)) await this.#state.commit([{ key: TAKEOVER_KEY, value: undefined }], { sync: false });
  }

  /** Writes the starts of the logs while they run: the recovery point file stays empty meanwhile. @throws FileError */
  async writeLogStarts(logStarts: readonly OffsetCheckpointEntry[]): Promise<void> {
    await this.#replace(LOG_START_CHECKPOINT, encodeOffsetCheckpoint(logStarts));
  }

  /** Writes all four files for whoever opens the directory next. Only when every log is flushed. @throws FileError */
  async writeAll({ recoveryPoints, logStarts, highWatermarks, cleanerOffsets }: DirectoryOffsets): Promise<void> {
    // The start of a log first: a recovery point may only ever point into a log that begins where it says.
    await this.#replace(LOG_START_CHECKPOINT, encodeOffsetCheckpoint(logStarts));
    await this.#replace(REPLICATION_CHECKPOINT, encodeOffsetCheckpoint(highWatermarks));
    if (cleanerOffsets.length > 0) await this.#replace(CLEANER_CHECKPOINT, encodeOffsetCheckpoint(cleanerOffsets));
    await this.#replace(RECOVERY_POINT_CHECKPOINT, encodeOffsetCheckpoint(recoveryPoints));
  }

  async #replace(name: CheckpointFile, content: Uint8Array): Promise<void> {
    const next = fingerprint(content);
    const accepted = this.#prints.get(name) ?? [];
    this.#prints.set(name, [...new Set([...accepted, next])]);
    await this.#commitPrints(true);
    await writeFileAtomically(this.#files, joinPath(this.#directory, name), content);
    this.#prints.set(name, [next]);
    await this.#commitPrints(false);
  }

  async #commitPrints(sync: boolean): Promise<void> {
    await this.#state.commit([{ key: PRINTS_KEY, value: encodePrints(this.#prints) }], { sync });
  }
}

/** Whether a takeover of the directory was begun and not every partition opened since. */
export function isTakingOver(state: Pick<State, "get">): boolean {
  return state.get(TAKEOVER_KEY) !== undefined;
}

/** Whether the checkpoint files are as this `State` last knew them: no other program ran here since. Changes nothing. @throws FileError */
export async function isAsStateLeftIt(
  files: FileSystem,
  state: Pick<State, "get">,
  directory: string,
): Promise<boolean> {
  const known = readPrints(state);
  for (const name of CHECKPOINT_FILES) {
    const { bytes } = await readOffsetCheckpoint(files, joinPath(directory, name));
    if (!isAsKnown(known, name, bytes)) return false;
  }
  return true;
}

function isAsKnown(
  known: ReadonlyMap<string, readonly string[]>,
  name: CheckpointFile,
  bytes: Uint8Array | undefined,
): boolean {
  // A version of before the cleaner file left no print of it: what it says is not taken then, and all is dirty.
  return known.get(name)?.includes(fingerprint(bytes)) ?? name === CLEANER_CHECKPOINT;
}

/** Puts that replace all offsets in `State` by those in the files. */
function takeOver(state: State, contents: ReadonlyMap<CheckpointFile, OffsetCheckpointContent>): StatePut[] {
  const notes = ["segment-gap/", "segment-swap/", SEAL_PREFIX, GAPLESS_PREFIX].flatMap((prefix) => state.keys(prefix));
  const puts: StatePut[] = notes.map((key) => ({ key, value: undefined }));
  for (const [name, { entries }] of contents) {
    const stateName = STATE_NAME[name];
    for (const key of state.keys(stateOffsetPrefix(stateName))) puts.push({ key, value: undefined });
    for (const { topic, partition, offset } of entries) {
      puts.push(putStateOffset(stateName, topic, partition, offset));
    }
  }
  return puts;
}

/** Puts that make `State` forget a partition, so that a new one of its name does not begin with its offsets. */
export function forgetPartition(state: State, partitionName: string): StatePut[] {
  const keys = PARTITION_KEY_PREFIXES.flatMap((prefix) => {
    const key = prefix + partitionName;
    return state.keys(key).filter((found) => found === key || found.startsWith(`${key}/`));
  });
  return keys.map((key) => ({ key, value: undefined }));
}

/** Names of the partitions that `State` knows anything of. */
export function knownPartitionNames(state: State): ReadonlySet<string> {
  const names = new Set<string>();
  for (const prefix of PARTITION_KEY_PREFIXES) {
    for (const key of state.keys(prefix)) names.add(key.slice(prefix.length).split("/", 1)[0] ?? "");
  }
  return names;
}

function fingerprint(content: Uint8Array | undefined): string {
  return content === undefined ? ABSENT_PRINT : `${content.length}-${crc32c(content).toString(16)}`;
}

function encodePrints(prints: ReadonlyMap<CheckpointFile, readonly string[]>): Uint8Array {
  return encodeUtf8([...prints].map(([name, accepted]) => [name, ...accepted].join(" ")).join("\n"));
}

function readPrints(state: Pick<State, "get">): ReadonlyMap<string, readonly string[]> {
  const lines = (readText(state, PRINTS_KEY) ?? "").split("\n").map((line) => line.split(" "));
  return new Map(lines.map(([name = "", ...accepted]) => [name, accepted]));
}

function readText(state: Pick<State, "get">, key: string): string | undefined {
  const bytes = state.get(key);
  return bytes === undefined ? undefined : parseUtf8(bytes);
}
