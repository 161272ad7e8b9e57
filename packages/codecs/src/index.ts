export { NODE_CODECS } from "./node-codecs.ts";
export { ZSTD_WAYS } from "./zstd.ts";
export type { Zstd } from "./zstd-way.ts";
