import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";

import { CommandError, hasCode } from "./errors.ts";

/** Whether the directory of a log has a partition of this topic. Only looks at names; an absent directory has none. */
export async function topicExists(directory: string, topic: string): Promise<boolean> {
  try {
    const names = await readdir(join(directory, "log"));
    return names.some((name) => name.startsWith(`${topic}-`) && /^\d+$/u.test(name.slice(topic.length + 1)));
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

/**
 * For commands that only read: opening a log would make what is missing.
 * @throws CommandError when the directory or the topic is not there
 */
export async function requireTopic(directory: string, topic: string): Promise<void> {
  if (!(await stat(directory)).isDirectory()) throw new CommandError(`${directory}: not a directory`);
  if (!(await topicExists(directory, topic)))
    throw new CommandError(`${directory}: there is no topic ${JSON.stringify(topic)}`);
}
