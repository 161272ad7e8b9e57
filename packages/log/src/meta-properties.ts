import { encodeUtf8, joinPath, parseUtf8, readFileIfPresent, writeFileAtomically } from "@tidemark/base";
import type { FileSystem, Random } from "@tidemark/base";
import { LogError } from "./error.ts";
import { isUuid, randomUuid } from "./uuid.ts";

export const META_PROPERTIES_FILE = "meta.properties";

const NODE_ID_MAX = 2 ** 31 - 1;

/** Whose log directory this is. */
export interface MetaProperties {
  readonly clusterId: string;
  /** int32, at least 0. */
  readonly nodeId: number;
  /** Kafka's uuid spelling; `undefined` in files of Kafka before 3.7. */
  readonly directoryId: string | undefined;
}

/**
 * Bytes of `meta.properties`, version 1, as Java's `Properties` reads them. Kafka's second line is the date; ours has none,
 * so that the same input gives the same bytes.
 */
export function encodeMetaProperties(properties: MetaProperties): Uint8Array {
  const { clusterId, nodeId, directoryId } = properties;
  const lines = ["#", "version=1", `cluster.id=${escapeValue(clusterId)}`, `node.id=${nodeId}`];
  if (directoryId !== undefined) lines.push(`directory.id=${escapeValue(directoryId)}`);
  return encodeUtf8(`${lines.join("\n")}\n`);
}

/**
 * @throws LogError META_PROPERTIES_INVALID
 * Source: apache/kafka metadata/.../properties/MetaProperties.java
 */
export function decodeMetaProperties(bytes: Uint8Array, path: string): MetaProperties {
  const text = parseUtf8(bytes);
  if (text === undefined) throw invalid(path, "not UTF-8");
  const properties = parseJavaProperties(text);
  const version = properties.get("version");
  if (version !== "1") throw invalid(path, `version ${version ?? "is missing"}; only 1 is read`);
  const clusterId = properties.get("cluster.id");
  if (clusterId === undefined || clusterId === "") throw invalid(path, "cluster.id is missing");
  const nodeIdText = properties.get("node.id") ?? "";
  const nodeId = /^\+?\d+$/.test(nodeIdText) ? Number(nodeIdText) : -1;
  if (nodeId < 0 || nodeId > NODE_ID_MAX) throw invalid(path, `node.id "${nodeIdText}" is not an int32 of at least 0`);
  const directoryId = properties.get("directory.id");
  if (directoryId !== undefined && !isUuid(directoryId))
    throw invalid(path, `directory.id "${directoryId}" is not a uuid`);
  return { clusterId, nodeId, directoryId };
}

export interface MetaPropertiesWanted {
  /** `undefined` takes what the file says; 1 for a new one. */
  readonly nodeId: number | undefined;
  /** `undefined` takes what the file says; a random one for a new one. */
  readonly clusterId: string | undefined;
}

const NODE_ID_DEFAULT = 1;

/**
 * Reads the file, or makes it for a directory that has none, and gives the directory an id if it has none.
 * @throws LogError META_PROPERTIES_INVALID, INCONSISTENT_CLUSTER_ID, INCONSISTENT_NODE_ID
 * @throws FileError
 */
export async function openMetaProperties(
  files: FileSystem,
  random: Random,
  directory: string,
  wanted: MetaPropertiesWanted,
): Promise<MetaProperties & { readonly directoryId: string }> {
  const path = joinPath(directory, META_PROPERTIES_FILE);
  const bytes = await readFileIfPresent(files, path);
  const found = bytes === undefined ? undefined : decodeMetaProperties(bytes, path);
  if (found !== undefined) checkOwner(found, wanted, path);
  const directoryId = found?.directoryId;
  if (found !== undefined && directoryId !== undefined) return { ...found, directoryId };
  const made = {
    clusterId: found?.clusterId ?? wanted.clusterId ?? randomUuid(random, "cluster-id"),
    nodeId: found?.nodeId ?? wanted.nodeId ?? NODE_ID_DEFAULT,
    directoryId: randomUuid(random, "directory-id"),
  };
  await writeFileAtomically(files, path, encodeMetaProperties(made));
  return made;
}

function checkOwner(found: MetaProperties, wanted: MetaPropertiesWanted, path: string): void {
  if (wanted.clusterId !== undefined && wanted.clusterId !== found.clusterId) {
    throw new LogError({ code: "INCONSISTENT_CLUSTER_ID", path, found: found.clusterId, expected: wanted.clusterId });
  }
  if (wanted.nodeId !== undefined && wanted.nodeId !== found.nodeId) {
    throw new LogError({ code: "INCONSISTENT_NODE_ID", path, found: found.nodeId, expected: wanted.nodeId });
  }
}

function invalid(path: string, reason: string): LogError {
  return new LogError({ code: "META_PROPERTIES_INVALID", path, reason });
}

/**
 * Keys and values of a Java properties text: `#` and `!` comments, `=`, `:` or blanks between key and value, backslash
 * escapes, lines continued by a backslash at their end. Of a key that is there twice the last line wins.
 * Source: java.util.Properties.load
 */
export function parseJavaProperties(text: string): Map<string, string> {
  const properties = new Map<string, string>();
  for (const line of logicalLines(text)) {
    const keyEnd = /(?:\\.|[^\\=: \t\f])*/su.exec(line)?.[0].length ?? 0;
    const separator = /^[ \t\f]*[=:]?[ \t\f]*/.exec(line.slice(keyEnd))?.[0] ?? "";
    properties.set(unescape(line.slice(0, keyEnd)), unescape(line.slice(keyEnd + separator.length)));
  }
  return properties;
}

function logicalLines(text: string): string[] {
  const lines: string[] = [];
  let continued: string | undefined;
  for (const natural of text.split(/\r\n|\r|\n/)) {
    const line = natural.replace(/^[ \t\f]+/, "");
    // Blank lines and comments count only where no line is being continued.
    if (continued === undefined && (line === "" || line.startsWith("#") || line.startsWith("!"))) continue;
    const whole: string = (continued ?? "") + line;
    const backslashCount = /\\*$/.exec(line)?.[0].length ?? 0;
    continued = backslashCount % 2 === 1 ? whole.slice(0, -1) : undefined;
    if (continued === undefined) lines.push(whole);
  }
  if (continued !== undefined) lines.push(continued);
  return lines;
}

const ESCAPES: Readonly<Record<string, string>> = { t: "\t", n: "\n", r: "\r", f: "\f" };

function unescape(text: string): string {
  return text.replaceAll(
    /\\(?:u([0-9a-fA-F]{4})|(.))/gsu,
    (_whole, hex: string | undefined, plain: string | undefined) =>
      hex === undefined ? (ESCAPES[plain ?? ""] ?? plain ?? "") : String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

/** Escapes what Java's reader would not take as it is. */
function escapeValue(text: string): string {
  return text.replaceAll(/[\\=:#!]|^ |[\t\n\r\f]/g, (char) => {
    const named = Object.keys(ESCAPES).find((key) => ESCAPES[key] === char);
    return `\\${named ?? char}`;
  });
}
