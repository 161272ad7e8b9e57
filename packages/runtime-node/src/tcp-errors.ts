import type { NetworkErrorCode, NetworkOperation } from "@tidemark/base";
import { NetworkError } from "@tidemark/base";
import { systemErrorCode } from "./file-errors.ts";

/** What the operating system says, and the code of the port that asks for the same reaction. */
const CODES: ReadonlyMap<string, NetworkErrorCode> = new Map([
  ["EACCES", "EACCES"],
  ["EPERM", "EACCES"],
  ["EADDRINUSE", "EADDRINUSE"],
  ["EADDRNOTAVAIL", "EADDRNOTAVAIL"],
  ["ECONNABORTED", "ECONNRESET"],
  ["ECONNREFUSED", "ECONNREFUSED"],
  ["ECONNRESET", "ECONNRESET"],
  ["EPIPE", "ECONNRESET"],
  ["ENOTCONN", "ECONNRESET"],
  ["ERR_STREAM_DESTROYED", "ECONNRESET"],
  ["ERR_STREAM_WRITE_AFTER_END", "ECONNRESET"],
  ["EAI_AGAIN", "EHOSTUNREACH"],
  ["EAI_FAIL", "EHOSTUNREACH"],
  ["EHOSTDOWN", "EHOSTUNREACH"],
  ["EHOSTUNREACH", "EHOSTUNREACH"],
  ["ENETDOWN", "EHOSTUNREACH"],
  ["ENETUNREACH", "EHOSTUNREACH"],
  ["ENODATA", "EHOSTUNREACH"],
  ["ENOTFOUND", "EHOSTUNREACH"],
  ["EMFILE", "EMFILE"],
  ["ENFILE", "EMFILE"],
  ["ETIMEDOUT", "ETIMEDOUT"],
]);

/** The error of a system call as the port's, the original kept as its cause. */
export function toNetworkError(error: unknown, operation: NetworkOperation, address: string): NetworkError {
  return new NetworkError(CODES.get(systemErrorCode(error)) ?? "EIO", operation, address, { cause: error });
}

/** `host:port`, an IPv6 host in brackets. */
export function showAddress(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
