import { basename } from "node:path";

import { parseUtf8, WorkerError } from "@tidemark/base";
import { NODE_JOBS } from "@tidemark/runtime-node";
import {
  checkCrc,
  codecId,
  type BatchHeader,
  COMPRESSION_CODECS,
  decodeRecords,
  type DecodedRecord,
  decompressBatchNow,
  incrementSequence,
  isControlBatch,
  isLogAppendTime,
  isTransactional,
  WireError,
} from "@tidemark/wire";

import { controlRecordText } from "./control-record.ts";
import type { Dump, Print } from "./dump-kind.ts";
import { escapeControls, toHex } from "./format.ts";
import { segmentBaseOffset, segmentBatches } from "./segment-file.ts";

const DELETE_HORIZON_BIT = 0x40;
/** A payload that unpacks to more is not shown. */
const DECOMPRESSED_BYTES_MAX = 2 ** 30;

/**
 * Each batch of a `.log` file, and with `records` each record under it. A batch is judged by its CRC; bytes that are no whole
 * batch end the file, as they end it for a reader.
 * Source: apache/kafka tools/src/main/java/org/apache/kafka/tools/DumpLogSegments.java dumpLog
 */
export const dumpSegment: Dump = async (path, print, options) => {
  let problemCount = 0;
  const baseOffset = segmentBaseOffset(basename(path));
  if (baseOffset !== undefined) await print(`Log starting offset: ${baseOffset}`);
  for await (const step of segmentBatches(path)) {
    if (step.type === "broken") {
      await print(
        `Found ${step.bytesLeft} invalid bytes at the end of ${basename(path)}, from position ${step.positionBytes}: ${step.reason}`,
      );
      return problemCount + 1;
    }
    const isValid = checkCrc(step.bytes, step.header);
    if (!isValid) problemCount += 1;
    if (!(await print(batchLine(step.header, step.positionBytes, isValid)))) break;
    if (options.records) problemCount += await dumpRecords(step.bytes, step.header, isValid, print);
  }
  return problemCount;
};

function batchLine(header: BatchHeader, positionBytes: number, isValid: boolean): string {
  const { baseSequence, lastOffsetDelta } = header;
  const lastSequence = baseSequence < 0 ? -1 : incrementSequence(baseSequence, lastOffsetDelta);
  const horizon =
    (header.attributes & DELETE_HORIZON_BIT) === 0 ? "OptionalLong.empty" : `OptionalLong[${header.baseTimestamp}]`;
  return [
    `baseOffset: ${header.baseOffset} lastOffset: ${header.lastOffset} count: ${header.recordsCount}`,
    `baseSequence: ${baseSequence} lastSequence: ${lastSequence}`,
    `producerId: ${header.producerId} producerEpoch: ${header.producerEpoch}`,
    `partitionLeaderEpoch: ${header.partitionLeaderEpoch}`,
    `isTransactional: ${isTransactional(header)} isControl: ${isControlBatch(header)} deleteHorizonMs: ${horizon}`,
    `position: ${positionBytes} ${timestampType(header)}: ${header.maxTimestamp} size: ${header.sizeInBytes}`,
    `magic: ${header.magic} compresscodec: ${COMPRESSION_CODECS[codecId(header)] ?? "unknown"} crc: ${header.crc} isvalid: ${isValid}`,
  ].join(" ");
}

function timestampType(header: BatchHeader): string {
  return isLogAppendTime(header) ? "LogAppendTime" : "CreateTime";
}

async function dumpRecords(bytes: Uint8Array, header: BatchHeader, isValid: boolean, print: Print): Promise<number> {
  try {
    const payload = decompressBatchNow(NODE_JOBS, bytes, header, DECOMPRESSED_BYTES_MAX);
    for (const record of decodeRecords(header, payload)) {
      if (!(await print(`| ${recordText(record, isControlBatch(header))}`))) return 0;
    }
    return 0;
  } catch (error) {
    if (!(error instanceof WireError || error instanceof WorkerError)) throw error;
    await print(`| records cannot be read: ${error.message}`);
    return isValid ? 1 : 0; // A wrong CRC was counted already.
  }
}

function recordText(record: DecodedRecord, isControl: boolean): string {
  const { key, value } = record;
  const parts = [
    `offset: ${record.offset} ${record.timestampType}: ${record.timestamp}`,
    `keySize: ${key === null ? -1 : key.length} valueSize: ${value === null ? -1 : value.length} sequence: ${record.sequence}`,
    `headerKeys: [${record.headers.map((header) => escapeControls(header.key)).join(",")}]`,
  ];
  if (isControl) {
    const text = controlRecordText(key, value);
    if (text === undefined) parts.push(`controlKey: ${key === null ? "null" : toHex(key)}`);
    if (text !== undefined) parts.push(text);
    else if (value !== null) parts.push(`controlValue: ${toHex(value)}`);
  } else {
    if (key !== null) parts.push(`key: ${shown(key)}`);
    if (value !== null) parts.push(`payload: ${shown(value)}`);
  }
  return parts.join(" ");
}

/** UTF-8 as text with its control characters escaped, anything else in hexadecimal. */
function shown(bytes: Uint8Array): string {
  const text = parseUtf8(bytes);
  return text === undefined ? `0x${toHex(bytes)}` : escapeControls(text);
}
