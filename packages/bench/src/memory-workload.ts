import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { IdleOptions } from "./idle-partitions.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import type { Subject, Workload } from "./workload.ts";

const PARTITIONS = 1000;
const PARTITIONS_QUICK = 50;
const ROUNDS_MAX = 3;
/** What Node is told where this module itself is no compiled one. */
const FROM_SOURCES = ["--import", "tsx", "--conditions=tidemark-source"];

/** What a node takes that does nothing. */
export function memoryWorkloads(): readonly Workload[] {
  return [
    roundsWorkload({
      name: "memory of 1,000 idle partitions",
      unit: "MiB",
      explanation:
        "Resident memory (RSS) of a process of its own with one node, a moment after its last work; in use: a record was appended to each partition and " +
        "read again in that process. The first row is Node with the engine, and no partition. With --quick there are 50.",
      subjects: [
        idleSubject("tidemark, no partition", "none"),
        idleSubject("tidemark, 1,000 partitions", "idle"),
        idleSubject("tidemark, 1,000 partitions in use", "used"),
      ],
      peers: [],
      opensForEachSample: false,
      roundsMax: ROUNDS_MAX,
    }),
  ];
}

function idleSubject(name: string, what: "none" | "idle" | "used"): Subject {
  return {
    name,
    open: async (directory, { quick }) => {
      const partitions = what === "none" ? 0 : quick ? PARTITIONS_QUICK : PARTITIONS;
      const options = { directory, partitions, isUsed: what === "used" };
      if (!quick) await idle(options); // Makes the partitions; with --quick the only sample does.
      return {
        sample: () => idle(options),
        close: async () => undefined,
      };
    },
  };
}

/** MiB. */
async function idle(options: IdleOptions): Promise<number> {
  const isSource = import.meta.url.endsWith(".ts");
  const program = fileURLToPath(new URL(isSource ? "./idle-partitions.ts" : "./idle-partitions.js", import.meta.url));
  const child = fork(program, {
    execArgv: [...(isSource ? FROM_SOURCES : []), "--expose-gc"],
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(child, "exit");
  const answered = once(child, "message");
  child.send(options);
  const answer = await Promise.race([answered, ended]);
  await ended;
  const [message] = answer as [{ readonly rssBytes: number } | number | null];
  if (typeof message !== "object" || message === null) throw new Error(`the idle node ended with ${message}`);
  return message.rssBytes / 1024 ** 2;
}
