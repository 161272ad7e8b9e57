/**
 * The bytes in memory that may move to another thread: their own when the view covers all of it, else a copy.
 *
 * A view on part of a buffer is copied because moving it would take the rest away from its owner; Node's small buffers are
 * such views, on a pool that cannot be moved at all, and posting one would copy the whole pool.
 */
export function transferable(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const { buffer } = bytes;
  if (buffer instanceof ArrayBuffer && bytes.byteLength === buffer.byteLength) return new Uint8Array(buffer);
  return new Uint8Array(bytes);
}
