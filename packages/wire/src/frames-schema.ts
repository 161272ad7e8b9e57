import protobuf from "protobufjs/light.js";

/**
 * The header of a frame in protobuf. Field numbers are for ever: a field may be added or fall out of use, its number never means anything else.
 *
 * Field names are those of `peer-messages.ts`, with three differences: `error` is Kafka's number; `batch`, `bytes` and `json` are the
 * lengths of what lies behind the header, in the order of the header. Integers are zigzag: -1 takes one byte.
 */

interface FieldDescriptor {
  readonly id: number;
  /** A scalar of protobuf, or the name of a message below. */
  readonly type: string;
  readonly rule?: "repeated";
}

const str = (id: number): FieldDescriptor => ({ id, type: "string" });
const int32 = (id: number): FieldDescriptor => ({ id, type: "sint32" });
const int64 = (id: number): FieldDescriptor => ({ id, type: "sint64" });
const length = (id: number): FieldDescriptor => ({ id, type: "uint32" });
const bool = (id: number): FieldDescriptor => ({ id, type: "bool" });
const message = (id: number, type: string): FieldDescriptor => ({ id, type });
const list = (id: number, type: string): FieldDescriptor => ({ id, type, rule: "repeated" });

/** Bodies of a header: the kind of the message and whether it is an answer. One of them is present. */
const BODIES = {
  produceRequest: message(2, "ProduceRequest"),
  produceResponse: message(3, "ProduceResponse"),
  fetchRequest: message(4, "FetchRequest"),
  fetchResponse: message(5, "FetchResponse"),
  offsetsForLeaderEpochRequest: message(6, "OffsetsForLeaderEpochRequest"),
  offsetsForLeaderEpochResponse: message(7, "OffsetsForLeaderEpochResponse"),
  registerRequest: message(8, "RegisterRequest"),
  registerResponse: message(9, "RegisterResponse"),
  alterPartitionRequest: message(10, "AlterPartitionRequest"),
  alterPartitionResponse: message(11, "AlterPartitionResponse"),
  clusterStateRequest: message(12, "ClusterStateRequest"),
  clusterStateResponse: message(13, "ClusterStateResponse"),
  describeRequest: message(14, "DescribeRequest"),
  describeResponse: message(15, "DescribeResponse"),
};

const MESSAGES: Readonly<Record<string, Readonly<Record<string, FieldDescriptor>>>> = {
  ProduceRequest: { acks: int32(1), timeoutMs: int32(2), partitions: list(3, "ProducePartition") },
  ProducePartition: { topic: str(1), partition: int32(2), batch: length(3) },
  ProduceResponse: { partitions: list(1, "ProducePartitionResponse") },
  ProducePartitionResponse: {
    topic: str(1),
    partition: int32(2),
    error: int32(3),
    baseOffset: int64(4),
    lastOffset: int64(5),
    leaderId: int32(6),
    leaderEpoch: int32(7),
  },
  FetchRequest: {
    replicaId: int32(1),
    brokerEpoch: int64(2),
    maxWaitMs: int32(3),
    minBytes: int32(4),
    maxBytes: int32(5),
    partitions: list(6, "FetchPartition"),
  },
  FetchPartition: {
    topic: str(1),
    partition: int32(2),
    currentLeaderEpoch: int32(3),
    fetchOffset: int64(4),
    flushedEndOffset: int64(5),
    lastFetchedEpoch: int32(6),
    logStartOffset: int64(7),
    maxBytes: int32(8),
  },
  FetchResponse: { partitions: list(1, "FetchPartitionResponse") },
  FetchPartitionResponse: {
    topic: str(1),
    partition: int32(2),
    error: int32(3),
    highWatermark: int64(4),
    logStartOffset: int64(5),
    logEndOffset: int64(6),
    divergingEpoch: int32(7),
    divergingEndOffset: int64(8),
    bytes: length(9),
  },
  OffsetsForLeaderEpochRequest: {
    replicaId: int32(1),
    brokerEpoch: int64(2),
    partitions: list(3, "OffsetsForLeaderEpochPartition"),
  },
  OffsetsForLeaderEpochPartition: {
    topic: str(1),
    partition: int32(2),
    currentLeaderEpoch: int32(3),
    leaderEpoch: int32(4),
  },
  OffsetsForLeaderEpochResponse: { partitions: list(1, "OffsetsForLeaderEpochPartitionResponse") },
  OffsetsForLeaderEpochPartitionResponse: {
    topic: str(1),
    partition: int32(2),
    error: int32(3),
    leaderEpoch: int32(4),
    endOffset: int64(5),
    logStartOffset: int64(6),
    logEndOffset: int64(7),
  },
  RegisterRequest: {
    brokerId: int32(1),
    incarnationId: str(2),
    bootId: str(3),
    cleanShutdownBrokerEpoch: int64(4),
    host: str(5),
    port: int32(6),
    isTailDurable: bool(7),
  },
  RegisterResponse: { error: int32(1), brokerEpoch: int64(2) },
  AlterPartitionRequest: {
    brokerId: int32(1),
    brokerEpoch: int64(2),
    topic: str(3),
    partition: int32(4),
    leaderEpoch: int32(5),
    partitionEpoch: int32(6),
    newIsr: list(7, "IsrMember"),
  },
  IsrMember: { brokerId: int32(1), brokerEpoch: int64(2) },
  AlterPartitionResponse: { error: int32(1), leaderEpoch: int32(2), partitionEpoch: int32(3), isr: list(4, "sint32") },
  ClusterStateRequest: { brokerId: int32(1), brokerEpoch: int64(2), afterNumber: int64(3), maxWaitMs: int32(4) },
  ClusterStateResponse: {
    error: int32(1),
    number: int64(2),
    brokers: list(3, "BrokerState"),
    partitions: list(4, "PartitionState"),
  },
  BrokerState: { brokerId: int32(1), brokerEpoch: int64(2), host: str(3), port: int32(4), isFenced: bool(5) },
  PartitionState: {
    topic: str(1),
    partition: int32(2),
    number: int64(3),
    topicId: str(4),
    replicas: list(5, "sint32"),
    isr: list(6, "sint32"),
    leader: int32(7),
    leaderEpoch: int32(8),
    partitionEpoch: int32(9),
  },
  DescribeRequest: {},
  DescribeResponse: { error: int32(1), json: length(2) },
};

/** Wire type of strings, packed lists and messages. */
const LENGTH_DELIMITED = 2;

function buildRoot(): protobuf.Root {
  const correlationId: FieldDescriptor = { id: 1, type: "uint64" };
  const header = { fields: { correlationId, ...BODIES }, oneofs: { body: { oneof: Object.keys(BODIES) } } };
  const messages = Object.entries(MESSAGES).map(([name, fields]) => [name, { fields }] as const);
  // The syntax decides what a missing field means: 0, "" or [], never "absent". protobufjs reads it; its types do not know of it.
  const descriptor = { edition: "proto3", nested: { Header: header, ...Object.fromEntries(messages) } };
  return protobuf.Root.fromJSON(descriptor);
}

const HEADER = buildRoot().lookupType("Header");

/** The name that the descriptor has for a body. */
export function bodyName(kind: string, isResponse: boolean): string {
  return kind + (isResponse ? "Response" : "Request");
}

/** @param fields as in the descriptor; 64-bit values are safe integers */
export function encodeHeader(fields: Readonly<Record<string, unknown>>): Uint8Array {
  return HEADER.encode(fields).finish();
}

/**
 * Messages inside the body of a header, without decoding them: what an element costs as an object is a hundred times what it takes here.
 * @throws Error of protobufjs when the bytes are no protobuf
 */
export function countElements(bytes: Uint8Array): number {
  const reader = protobuf.Reader.create(bytes);
  let count = 0;
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if ((tag & 7) !== LENGTH_DELIMITED) {
      reader.skipType(tag & 7);
      continue;
    }
    const bodyEnd = reader.uint32() + reader.pos;
    while (reader.pos < bodyEnd) {
      const wireType = reader.uint32() & 7;
      if (wireType === LENGTH_DELIMITED) count++;
      reader.skipType(wireType);
    }
  }
  return count;
}

/** What a header says: every field of its messages is there, absent ones as 0, "", false or []; `body` names the one that is present. */
export interface DecodedHeader {
  readonly correlationId: number;
  readonly body: string | undefined;
  readonly message: Record<string, unknown>;
}

/**
 * Unknown fields are passed over. 64-bit values beyond 2^53 - 1 come out as unsafe integers: the caller checks.
 * @throws Error of protobufjs when the bytes are no protobuf or have a field of ours with another type
 */
export function decodeHeader(bytes: Uint8Array): DecodedHeader {
  const reader = protobuf.Reader.create(bytes);
  reader.discardUnknown = true;
  const header = HEADER.toObject(HEADER.decode(reader), { longs: Number, defaults: true, oneofs: true });
  const body: unknown = header["body"];
  return {
    correlationId: Number(header["correlationId"]),
    body: typeof body === "string" ? body : undefined,
    message: typeof body === "string" ? header[body] : {},
  };
}
