import { parseUtf8 } from "@tidemark/base";
import { Tidemark, type FetchedRecord } from "@tidemark/server";

import { EXIT_OK } from "./errors.ts";
import type { FetchCommandOptions, FetchFormat } from "./fetch-options.ts";
import { toHex } from "./format.ts";
import { Output } from "./output.ts";
import { requireTopic } from "./topic-directory.ts";

const KEEP_ALIVE_MS = 60_000;
const NEWLINE = Uint8Array.of(0x0a);

/**
 * Prints the records of a partition, each followed by a line break: as `value` the bytes of its value as they are (nothing for
 * null), as `json` all of it, as `hex` the value in hexadecimal. A reader that goes away ends it quietly.
 * @throws CommandError when there is no such directory or topic, TidemarkError
 */
export async function fetchRecords(
  options: FetchCommandOptions,
  signal: AbortSignal,
  output = new Output(),
): Promise<number> {
  await requireTopic(options.directory, options.topic);
  await using log = await Tidemark.open({ directory: options.directory });
  const topic = await log.topic(options.topic);
  const { partition, from, follow, maxRecords = Number.POSITIVE_INFINITY } = options;
  if (maxRecords === 0) return EXIT_OK;
  let count = 0;
  // A wait for records is nothing that keeps a process of Node alive.
  const keepAlive = follow ? setInterval(() => {}, KEEP_ALIVE_MS) : undefined;
  try {
    for await (const record of topic.fetch({ partition, from, follow, signal })) {
      const isFull = output.add(formatRecord(record, options.format));
      count += 1;
      if (output.add(NEWLINE) || isFull) await output.flush();
      else if (follow) output.flushSoon();
      if (output.isClosed || count >= maxRecords) break;
    }
    await output.end();
  } finally {
    clearInterval(keepAlive);
  }
  return EXIT_OK;
}

function formatRecord(record: FetchedRecord, format: FetchFormat): Uint8Array {
  switch (format) {
    case "value":
      return record.value ?? new Uint8Array(0);
    case "hex":
      return Buffer.from(record.value === null ? "null" : toHex(record.value));
    case "json":
      return Buffer.from(JSON.stringify(toJson(record)));
    default:
      return format satisfies never;
  }
}

/** Bytes that are UTF-8 as text under their own name, others as base64 under `nameBase64`. */
function toJson({ partition, offset, timestamp, key, value, headers }: FetchedRecord): Record<string, unknown> {
  const shownHeaders = headers.map((header) => ({ key: header.key, ...shown("value", header.value) }));
  return { partition, offset, timestamp, ...shown("key", key), ...shown("value", value), headers: shownHeaders };
}

function shown(name: string, bytes: Uint8Array | null): Record<string, string | null> {
  if (bytes === null) return { [name]: null };
  const text = parseUtf8(bytes);
  if (text !== undefined) return { [name]: text };
  return { [`${name}Base64`]: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64") };
}
