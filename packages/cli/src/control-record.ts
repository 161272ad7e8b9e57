import { VarintReader } from "@tidemark/wire";

/**
 * What a control record says, in the words of Kafka's dump tool; `undefined` for a type that means nothing here, or bytes that are none.
 *
 * Values are messages in Kafka's compact encoding, of the one version that Kafka 4.3.1 writes; `docs/formats` draws them.
 * Source: apache/kafka tools/.../DumpLogSegments.java dumpLog, clients/.../common/message/*.json
 */
export function controlRecordText(key: Uint8Array | null, value: Uint8Array | null): string | undefined {
  if (key === null || value === null || key.length < KEY_BYTES) return undefined;
  const reader = new MessageReader(value);
  const text = textOf(new DataView(key.buffer, key.byteOffset).getInt16(2), reader);
  return reader.isBroken ? undefined : text;
}

/** A uuid. */
const LONGEST_FIELD_BYTES = 16;
/** Version and type, an i16 each. */
const KEY_BYTES = 4;

function textOf(type: number, reader: MessageReader): string | undefined {
  switch (type) {
    case 0:
    case 1: {
      reader.int16();
      return `endTxnMarker: ${type === 0 ? "ABORT" : "COMMIT"} coordinatorEpoch: ${reader.int32()}`;
    }
    case 2: {
      const voter = () => reader.tagged({ voterId: reader.int32() });
      const version = reader.int16();
      const leaderId = reader.int32();
      const voters = reader.array(voter);
      return `LeaderChange: ${JSON.stringify({ version, leaderId, voters, grantingVoters: reader.array(voter) })}`;
    }
    case 3:
      return `SnapshotHeader ${JSON.stringify({ version: reader.int16(), lastContainedLogTimestamp: reader.int64() })}`;
    case 4:
      return `SnapshotFooter ${JSON.stringify({ version: reader.int16() })}`;
    case 5:
      return `KRaftVersion ${JSON.stringify({ version: reader.int16(), kRaftVersion: reader.int16() })}`;
    case 6:
      return `KRaftVoters ${JSON.stringify({ version: reader.int16(), voters: reader.array(() => votersEntry(reader)) })}`;
    default:
      return undefined;
  }
}

function votersEntry(reader: MessageReader): unknown {
  const voterId = reader.int32();
  const voterDirectoryId = reader.uuid();
  const endpoints = reader.array(() =>
    reader.tagged({ name: reader.string(), host: reader.string(), port: reader.uint16() }),
  );
  const kRaftVersionFeature = reader.tagged({
    minSupportedVersion: reader.int16(),
    maxSupportedVersion: reader.int16(),
  });
  return reader.tagged({ voterId, voterDirectoryId, endpoints, kRaftVersionFeature });
}

/** Reads fields one after another. Past the end all of them are 0 or empty, and `isBroken` tells. */
class MessageReader {
  readonly #bytes: Uint8Array;
  #position = 0;
  #isBroken = false;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isBroken(): boolean {
    return this.#isBroken;
  }

  int16(): number {
    return this.#take(2).readInt16BE();
  }

  uint16(): number {
    return this.int16() & 0xffff;
  }

  int32(): number {
    return this.#take(4).readInt32BE();
  }

  int64(): number {
    return Number(this.#take(8).readBigInt64BE());
  }

  /** As Kafka spells it: base64 for URLs. */
  uuid(): string {
    return this.#take(16).toString("base64url");
  }

  string(): string {
    return this.#take(this.#compactLength()).toString("utf8");
  }

  array<Item>(readItem: () => Item): Item[] {
    const count = this.#compactLength();
    const items: Item[] = [];
    for (let at = 0; at < count && !this.#isBroken; at += 1) items.push(readItem());
    return items;
  }

  /** A structure ends with its tagged fields, which none has today. */
  tagged<Structure>(structure: Structure): Structure {
    if (this.#unsignedVarint() !== 0) this.#isBroken = true;
    return structure;
  }

  /** One too large in the bytes: 0 stands for null. */
  #compactLength(): number {
    return Math.max(this.#unsignedVarint() - 1, 0);
  }

  #unsignedVarint(): number {
    const reader = new VarintReader(this.#bytes, this.#position);
    const value = reader.readUnsignedVarint();
    if (reader.fault !== undefined) this.#isBroken = true;
    this.#position = reader.position;
    return value;
  }

  #take(count: number): Buffer {
    const from = this.#position;
    if (count > this.#bytes.length - from) {
      this.#isBroken = true;
      return Buffer.alloc(LONGEST_FIELD_BYTES);
    }
    this.#position = from + count;
    return Buffer.from(this.#bytes.buffer, this.#bytes.byteOffset + from, count);
  }
}
