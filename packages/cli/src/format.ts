/** `1234567` -> `1,234,567`. */
export function formatCount(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** Bytes with a decimal unit: `999 B`, `1.5 kB`, `2.1 MB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(1)} kB`;
  if (bytes < 1e9) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${(bytes / 1e9).toFixed(2)} GB`;
}

export function formatDuration(durationMs: number): string {
  return durationMs < 1000 ? `${Math.round(durationMs)} ms` : `${(durationMs / 1000).toFixed(2)} s`;
}

/** `count noun`, with an s unless there is one. */
export function plural(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

const CONTROL_OR_BACKSLASH = /[\p{Cc}\\]/gu;

/** Text that is safe to show on a terminal: control characters and the backslash are escaped. */
export function escapeControls(text: string): string {
  return text.replaceAll(CONTROL_OR_BACKSLASH, (character) => {
    if (character === "\\") return "\\\\";
    if (character === "\n") return "\\n";
    if (character === "\r") return "\\r";
    if (character === "\t") return "\\t";
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

export function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex");
}
