import { readFile } from "node:fs/promises";

/** Where Linux tells when it was booted: another random UUID each time. */
const BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/**
 * Tells one run of the machine's kernel from the next, and so the death of a process from the death of its machine:
 * - `known`: equal for two processes exactly when no boot lies between them;
 * - `unknown`: the system does not say. Whoever asks has to take every stop that was not clean for a crash of the machine.
 */
export type BootId =
  | { readonly type: "known"; readonly bootId: string }
  | { readonly type: "unknown"; readonly reason: string };

/** Never rejects. `path` stands in for the kernel's file in tests. */
export async function readBootId(path: string = BOOT_ID_PATH): Promise<BootId> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    return { type: "unknown", reason: error instanceof Error ? error.message : "not readable" };
  }
  const bootId = text.trim();
  if (!UUID.test(bootId)) return { type: "unknown", reason: `no UUID in ${path}` };
  return { type: "known", bootId };
}
