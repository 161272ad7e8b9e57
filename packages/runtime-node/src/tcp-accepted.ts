import * as net from "node:net";

/** What `net.connect` takes as `onread`: the socket reads into this memory, again and again. */
export interface OnRead {
  readonly buffer: Uint8Array;
  callback(count: number, buffer: Uint8Array): boolean;
}

/** The fields of Node's own that this file relies on, as far as they are there. */
interface Internals {
  _handle?: { useUserBuffer?: unknown } | null;
}

/**
 * The same connection as a socket that reads into memory of ours, as `net.connect` offers it and `net.createServer` does not.
 *
 * Otherwise Node allocates 64 KiB for each read, which costs a busy server more in collections than moving the bytes does. It takes the
 * handle out of one socket and makes another around it, both beyond Node's documentation, so it looks first.
 * @param accepted fresh from a server's "connection" event; not to be used afterwards, unless it is what is returned
 * @returns `accepted` itself where Node is not as expected: its bytes come by "data" events then
 */
export function readInto(
  accepted: net.Socket,
  onread: OnRead,
  options: { readonly highWaterMark: number },
): net.Socket {
  const internals = accepted as unknown as Internals;
  const handle = internals._handle;
  if (typeof handle !== "object" || typeof handle?.useUserBuffer !== "function") return accepted;
  internals._handle = null;
  // The server's count of its connections goes down; the connection itself is not the socket's any more.
  accepted.destroy();
  return new net.Socket({ ...options, handle, onread, readable: true, writable: true } as net.SocketConstructorOpts);
}
