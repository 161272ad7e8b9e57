import { LogError } from "@tidemark/log";
import { PEER_ERROR_NUMBERS } from "@tidemark/wire";
import type { PeerErrorCode } from "@tidemark/wire";

/** The error that a peer or client is told for what the log said. @throws what is no error of the log: a bug is not an answer */
export function peerErrorOf(error: unknown): PeerErrorCode {
  if (!(error instanceof LogError)) throw error;
  const { code } = error;
  if (code in PEER_ERROR_NUMBERS) return code as PeerErrorCode;
  if (code === "LOG_CLOSED") return "NOT_LEADER_OR_FOLLOWER";
  if (code === "QUEUE_FULL" || code === "WORKER_FAILED") return "THROTTLING_QUOTA_EXCEEDED";
  return "UNKNOWN_SERVER_ERROR";
}
