import type {
  AlterPartitionRequest,
  AlterPartitionResponse,
  BrokerState,
  PartitionName,
  PartitionState,
  PeerErrorCode,
  RegisterRequest,
  RegisterResponse,
} from "@tidemark/wire";

/** A registered broker, and what tells its next start from this one. */
export interface RegisteredBroker extends BrokerState {
  readonly incarnationId: string;
  readonly bootId: string;
  /** See `RegisterRequest`. Absent in files of before it was told. */
  readonly isTailDurable?: boolean;
}

/**
 * All that the controller knows, as plain data: it is written to its file as it is.
 *
 * `number` grows with every change; a partition carries the number of its last one, so that a broker can ask for what it missed.
 */
export interface ControllerState {
  readonly number: number;
  readonly nextBrokerEpoch: number;
  readonly brokers: readonly RegisteredBroker[];
  readonly partitions: readonly PartitionState[];
}

export const EMPTY_CONTROLLER_STATE: ControllerState = { number: 0, nextBrokerEpoch: 1, brokers: [], partitions: [] };

/** What follows from an input. The state is the same object when nothing changed: then there is nothing to write. */
export interface ControllerStep<Answer> {
  readonly state: ControllerState;
  readonly answer: Answer;
}

/**
 * A process has started. The same start may say so again.
 *
 * Whatever the broker led before is led anew, in a new epoch. Did only the process die (same boot of the kernel), or did it stop
 * cleanly, or was all that it was counted for on its disk, its log has what it had, and as the last member of an ISR it may lead
 * again. Else it may have lost the tail of its log, and leaves every ISR before anybody is elected; a partition that has no other
 * member waits. Of its disk both must say so: the process before, which wrote, and this one, which it may have failed under.
 */
export function register(state: ControllerState, request: RegisterRequest): ControllerStep<RegisterResponse> {
  const old = state.brokers.find(({ brokerId }) => brokerId === request.brokerId);
  if (old?.incarnationId === request.incarnationId) {
    return { state, answer: { kind: "register", error: "NONE", brokerEpoch: old.brokerEpoch } };
  }
  const { brokerId, incarnationId, bootId, isTailDurable, host, port } = request;
  const isWhole =
    old === undefined ||
    (old.isTailDurable === true && isTailDurable) ||
    old.bootId === bootId ||
    request.cleanShutdownBrokerEpoch === old.brokerEpoch;
  const left = old === undefined ? state : leave(state, brokerId, { evenIfLast: !isWhole });
  const brokerEpoch = left.nextBrokerEpoch;
  const broker: RegisteredBroker = {
    brokerId,
    brokerEpoch,
    host,
    port,
    isFenced: false,
    incarnationId,
    bootId,
    isTailDurable,
  };
  const registered = {
    ...left,
    number: left.number + 1,
    nextBrokerEpoch: brokerEpoch + 1,
    brokers: withBroker(left.brokers, broker),
  };
  return { state: electLeaderless(registered), answer: { kind: "register", error: "NONE", brokerEpoch } };
}

/** The broker is gone, as far as anybody can tell: it leads nothing any more, and leaves every ISR that has another member. */
export function fence(state: ControllerState, brokerId: number): ControllerState {
  const broker = state.brokers.find((other) => other.brokerId === brokerId);
  if (broker === undefined || broker.isFenced) return state;
  const fenced = {
    ...state,
    number: state.number + 1,
    brokers: withBroker(state.brokers, { ...broker, isFenced: true }),
  };
  return electLeaderless(leave(fenced, brokerId, { evenIfLast: false }));
}

/**
 * The same incarnation is heard of again. It comes back into ISRs through their leaders.
 *
 * The partition epochs grow: an ISR change that was refused because this broker was fenced may still be on its way a second time, and
 * its leader has taken it back and no longer waits for the broker.
 */
export function unfence(state: ControllerState, brokerId: number): ControllerState {
  const broker = state.brokers.find((other) => other.brokerId === brokerId);
  if (broker === undefined || !broker.isFenced) return state;
  let next: ControllerState = {
    ...state,
    number: state.number + 1,
    brokers: withBroker(state.brokers, { ...broker, isFenced: false }),
  };
  for (const partition of state.partitions)
    if (partition.replicas.includes(brokerId)) next = change(next, partition, {});
  return electLeaderless(next);
}

/** Makes a topic whose partitions begin with all replicas in the ISR. The name must be new. */
export function createTopic(
  state: ControllerState,
  topic: { readonly name: string; readonly topicId: string; readonly assignments: readonly (readonly number[])[] },
): ControllerState {
  const number = state.number + 1;
  const made = topic.assignments.map((replicas, partition): PartitionState => ({
    topic: topic.name,
    partition,
    number,
    topicId: topic.topicId,
    replicas,
    isr: replicas,
    leader: -1,
    leaderEpoch: -1,
    partitionEpoch: -1,
  }));
  return electLeaderless({ ...state, number, partitions: [...state.partitions, ...made] });
}

/** A leader by explicit choice, whatever its log may lack. @returns the same state when the broker is no live replica of it */
export function electUncleanly(state: ControllerState, name: PartitionName, brokerId: number): ControllerState {
  const known = find(state, name);
  if (known === undefined || !known.replicas.includes(brokerId) || !isAlive(state, brokerId)) return state;
  return change(state, known, { isr: [brokerId], leader: brokerId });
}

/**
 * The ISR that a leader asks for.
 * Source: apache/kafka metadata/.../controller/ReplicationControlManager.java, validateAlterPartitionData; first match wins
 */
export function alterPartition(
  state: ControllerState,
  request: AlterPartitionRequest,
): ControllerStep<AlterPartitionResponse> {
  const known = find(state, request);
  const error = refusalOf(state, request, known);
  if (error !== "NONE" || known === undefined) return { state, answer: answerOf(known, error) };
  const isr = known.replicas.filter((replica) => request.newIsr.some(({ brokerId }) => brokerId === replica));
  const isSame = isr.length === known.isr.length && isr.every((replica) => known.isr.includes(replica));
  if (isSame) return { state, answer: answerOf(known, "NONE") };
  const next = change(state, known, { isr });
  return { state: next, answer: answerOf(find(next, request), "NONE") };
}

function refusalOf(
  state: ControllerState,
  request: AlterPartitionRequest,
  known: PartitionState | undefined,
): PeerErrorCode {
  const sender = state.brokers.find(({ brokerId }) => brokerId === request.brokerId);
  if (sender === undefined || sender.brokerEpoch !== request.brokerEpoch) return "STALE_BROKER_EPOCH";
  if (known === undefined) return "UNKNOWN_TOPIC_OR_PARTITION";
  if (request.leaderEpoch > known.leaderEpoch || request.partitionEpoch > known.partitionEpoch) return "NOT_CONTROLLER";
  if (request.leaderEpoch < known.leaderEpoch) return "FENCED_LEADER_EPOCH";
  if (request.brokerId !== known.leader) return "INVALID_REQUEST";
  if (request.partitionEpoch < known.partitionEpoch) return "INVALID_UPDATE_VERSION";
  const members = request.newIsr.map(({ brokerId }) => brokerId);
  const isSubset =
    new Set(members).size === members.length && members.every((member) => known.replicas.includes(member));
  if (!isSubset || !members.includes(known.leader)) return "INVALID_REQUEST";
  const isEligible = request.newIsr.every(({ brokerId, brokerEpoch }) => {
    const member = state.brokers.find((broker) => broker.brokerId === brokerId);
    return member !== undefined && !member.isFenced && (brokerEpoch === -1 || brokerEpoch === member.brokerEpoch);
  });
  return isEligible ? "NONE" : "INELIGIBLE_REPLICA";
}

function answerOf(known: PartitionState | undefined, error: PeerErrorCode): AlterPartitionResponse {
  const isTold = error === "NONE" && known !== undefined;
  return {
    kind: "alterPartition",
    error,
    leaderEpoch: isTold ? known.leaderEpoch : -1,
    partitionEpoch: isTold ? known.partitionEpoch : -1,
    isr: isTold ? known.isr : [],
  };
}

/** Takes a broker out of what it led, and out of its ISRs; as the last member only if told so. */
function leave(state: ControllerState, brokerId: number, options: { readonly evenIfLast: boolean }): ControllerState {
  let next = state;
  for (const partition of state.partitions) {
    const isMember = partition.isr.includes(brokerId);
    const isLeader = partition.leader === brokerId;
    if (!isMember && !isLeader) continue;
    const others = partition.isr.filter((member) => member !== brokerId);
    const isr = others.length > 0 || options.evenIfLast ? others : partition.isr;
    const leader = isLeader ? firstAlive(next, { ...partition, isr: others }) : partition.leader;
    if (isLeader || isr !== partition.isr) next = change(next, partition, isLeader ? { isr, leader } : { isr });
  }
  return next;
}

/** Gives every partition without a leader one of its ISR, if one lives. */
function electLeaderless(state: ControllerState): ControllerState {
  let next = state;
  for (const partition of state.partitions) {
    if (partition.leader >= 0) continue;
    const leader = firstAlive(next, partition);
    if (leader >= 0) next = change(next, partition, { leader });
  }
  return next;
}

/** The first live ISR member in the order of the assignment; -1 when there is none. */
function firstAlive(state: ControllerState, partition: PartitionState): number {
  return partition.replicas.find((replica) => partition.isr.includes(replica) && isAlive(state, replica)) ?? -1;
}

function isAlive(state: ControllerState, brokerId: number): boolean {
  return state.brokers.some((broker) => broker.brokerId === brokerId && !broker.isFenced);
}

/** The leader epoch grows whenever the leader is set, to the same broker too; the partition epoch with every change. */
function change(
  state: ControllerState,
  partition: PartitionState,
  set: { readonly isr?: readonly number[]; readonly leader?: number },
): ControllerState {
  const number = state.number + 1;
  const changed: PartitionState = {
    ...partition,
    ...set,
    number,
    partitionEpoch: partition.partitionEpoch + 1,
    leaderEpoch: set.leader === undefined ? partition.leaderEpoch : partition.leaderEpoch + 1,
  };
  return {
    ...state,
    number,
    partitions: state.partitions.map((other) => (isSameName(other, partition) ? changed : other)),
  };
}

function find(state: ControllerState, name: PartitionName): PartitionState | undefined {
  return state.partitions.find((partition) => isSameName(partition, name));
}

function isSameName(first: PartitionName, second: PartitionName): boolean {
  return first.topic === second.topic && first.partition === second.partition;
}

function withBroker(brokers: readonly RegisteredBroker[], broker: RegisteredBroker): readonly RegisteredBroker[] {
  return [...brokers.filter(({ brokerId }) => brokerId !== broker.brokerId), broker].toSorted(
    (first, second) => first.brokerId - second.brokerId,
  );
}
