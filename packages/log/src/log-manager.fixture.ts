import { decodeUtf8, encodeUtf8, toLeaderEpoch } from "@tidemark/base";
import type { FileSystem } from "@tidemark/base";
import { SimulatedDisk, SimulatedEnvironment, SimulatedState } from "@tidemark/simulator";
import type { CrashPoint } from "@tidemark/simulator";
import { encodeBatch } from "@tidemark/wire";
import { DEFAULT_LOG_CONFIG } from "./config.ts";
import { LogManager } from "./log-manager.ts";
import type { LogManagerOptions } from "./load-directory.ts";
import type { PartitionLog } from "./partition-log.ts";
import type { TopicConfig } from "./topic-config.ts";

export const DATA = "data";
export const CONFIG: TopicConfig = { ...DEFAULT_LOG_CONFIG, segmentBytes: 4096, compression: "none" };

/** A log directory on a simulated machine. */
export class ManagerFixture {
  environment: SimulatedEnvironment;

  constructor(disk?: SimulatedDisk) {
    this.environment = new SimulatedEnvironment({ seed: 5 }, disk);
  }

  static atProcessCrash(point: CrashPoint): ManagerFixture {
    return new ManagerFixture(SimulatedDisk.afterProcessCrash(point));
  }

  get files(): SimulatedDisk {
    return this.environment.files;
  }

  /** State as the last process left it; one that is closed stays so. */
  get state(): SimulatedState {
    return new SimulatedState(this.files);
  }

  open(options: Partial<LogManagerOptions> = {}): Promise<LogManager> {
    const { environment } = this;
    return LogManager.open({
      environment,
      openState: () => Promise.resolve(this.state),
      directory: DATA,
      defaults: CONFIG,
      ...options,
    });
  }

  kill(): void {
    this.environment = this.environment.crashProcess();
  }

  async loseState(): Promise<void> {
    const { state } = this;
    await state.commit(
      state.keys("").map((key) => ({ key, value: undefined })),
      { sync: true },
    );
  }

  read(path: string): Promise<string | undefined> {
    return readText(this.files, `${DATA}/${path}`);
  }

  async write(path: string, text: string): Promise<void> {
    const file = await this.files.open(`${DATA}/${path}`, "truncate");
    await file.writeAt(encodeUtf8(text), 0);
    await file.sync();
    await file.close();
    await this.files.syncDirectory(DATA);
  }

  async names(): Promise<string[]> {
    return [...(await this.files.list(DATA))].sort();
  }
}

async function readText(files: FileSystem, path: string): Promise<string | undefined> {
  try {
    const file = await files.open(path, "read");
    const bytes = new Uint8Array(await file.size());
    await file.readAt(bytes, 0);
    await file.close();
    return decodeUtf8(bytes);
  } catch {
    return undefined;
  }
}

/** The log of a partition, leading in a new epoch. */
export async function lead(manager: LogManager, topic: string, partition = 0): Promise<PartitionLog> {
  const log = manager.partition(topic, partition);
  if (log === undefined) throw new Error(`there is no ${topic}-${partition}`);
  await log.becomeLeader(toLeaderEpoch((log.epochEntries.at(-1)?.epoch ?? -1) + 1));
  return log;
}

export async function append(log: PartitionLog, ...values: readonly string[]): Promise<void> {
  for (const value of values) {
    await log.append(encodeBatch([{ key: null, value: encodeUtf8(value), timestamp: 1 }]), { origin: "local" });
  }
}
