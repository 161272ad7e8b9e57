/** A peer that cannot take part here; its rows say why. */
export class PeerUnavailableError extends Error {
  override readonly name = "PeerUnavailableError";
}

/** A process that runs Apache Kafka's log class. */
export interface KafkaLogProcess {
  /**
   * One command of KafkaLog.java.
   * @returns the words of its answer
   * @throws PeerUnavailableError when Java is gone, or was never there; Error with what Kafka refused
   */
  run(command: string): Promise<string[]>;
  /** Whether `kind` of work is to be warmed up: true once for each. */
  isCold(kind: string): boolean;
}

/** Where what is not part of the repository's own installation comes from. */
export interface Peers {
  /** A package of the peers' installation. @throws PeerUnavailableError */
  load(packageName: string): Promise<unknown>;
  /** The one Java process that runs Apache Kafka's log class. @throws PeerUnavailableError */
  kafka(): Promise<KafkaLogProcess>;
  /** Ends what was started. */
  close(): Promise<void>;
}

/** None of them: their rows say `reason`. */
export function noPeers(reason: string): Peers {
  const refuse = (): Promise<never> => Promise.reject(new PeerUnavailableError(reason));
  return { load: refuse, kafka: refuse, close: async () => undefined };
}
