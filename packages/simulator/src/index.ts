export { SimulatedClock, WALL_START_MS } from "./clock.ts";
export { immediateCompletion, KernelCompletion, SimulatedCrash } from "./completion.ts";
export type { Completion, LatencyRange } from "./completion.ts";
export { drawCrashImage, enumerateCrashImages } from "./crash-image.ts";
export { LOSS_RULES } from "./loss-rule.ts";
export type { EnumerationLimits, LossRule } from "./loss-rule.ts";
export { SimulatedDisk } from "./disk.ts";
export type { SimulatedDiskOptions } from "./disk.ts";
export type { DiskLimits } from "./disk-core.ts";
export { SimulatedEnvironment } from "./environment.ts";
export type { SimulatedEnvironmentOptions } from "./environment.ts";
export type { DiskFault, InjectedFault } from "./fault.ts";
export { Kernel } from "./kernel.ts";
export type { KernelOptions } from "./kernel.ts";
export { drawMessageFaults, QUIET } from "./message-network-faults.ts";
export type {
  HeldMessages,
  MessageFacts,
  MessageFault,
  MessageFaults,
  MessageFilter,
} from "./message-network-faults.ts";
export { startMessageSwarm } from "./message-network-swarm.ts";
export type { MessageSwarm } from "./message-network-swarm.ts";
export { SimulatedMessageNetwork, SimulatedPeer } from "./message-network.ts";
export type { MessageEvent, SimulatedMessageNetworkOptions } from "./message-network.ts";
export { SimulatedHost, SimulatedNetwork } from "./network.ts";
export type { SimulatedNetworkOptions } from "./network.ts";
export type { CrashPoint } from "./operation-log.ts";
export type { Operation, PendingOperation } from "./operation.ts";
export { SimulatedRandom } from "./random.ts";
export { SimulatedState, STATE_PATH } from "./state.ts";
export { DiskImage } from "./volume.ts";
export { POISON, SimulatedWorkerPool } from "./worker-pool.ts";
export { MutantApplication } from "./mutants/mutant.ts";
export type { Mutant, MutantEdit } from "./mutants/mutant.ts";
export { MEMORY_MUTANTS } from "./mutants/memory-mutants.ts";
export { mutantOf, MUTANTS } from "./mutants/mutants.ts";
export { REPAIR_MUTANTS } from "./mutants/repair-mutants.ts";
export { STORAGE_MUTANTS } from "./mutants/storage-mutants.ts";
