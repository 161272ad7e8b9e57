import type { Random } from "@tidemark/base";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const UUID_BYTES = 16;
const UUID_CHARS = 22;

/** Kafka's zero uuid: "no id". */
export const ZERO_UUID = "A".repeat(UUID_CHARS);

/**
 * A random (version 4) uuid in Kafka's spelling: base64url of 16 bytes without padding, 22 characters.
 *
 * Never begins with `-`, so that command lines do not take it for an option.
 * Source: apache/kafka clients/.../common/Uuid.java randomUuid
 */
export function randomUuid(random: Random, site: string): string {
  for (;;) {
    const bytes = random.bytes(site, UUID_BYTES);
    const view = new DataView(bytes.buffer, bytes.byteOffset, UUID_BYTES);
    view.setUint8(6, (view.getUint8(6) & 0x0f) | 0x40);
    view.setUint8(8, (view.getUint8(8) & 0x3f) | 0x80);
    const text = encodeBase64Url(bytes);
    if (!text.startsWith("-")) return text;
  }
}

/** Whether the text is a uuid in Kafka's spelling: 22 base64url characters for 16 bytes. */
export function isUuid(text: string): boolean {
  // The last character carries two bits of the 16th byte; the other four are padding and must be zero.
  return /^[A-Za-z0-9_-]{21}[AQgw]$/.test(text);
}

/** Lower-case hexadecimal. */
export function encodeHex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

function encodeBase64Url(bytes: Uint8Array): string {
  let text = "";
  let bits = 0;
  let bitCount = 0;
  for (const byte of bytes) {
    bits = (bits << 8) | byte;
    bitCount += 8;
    while (bitCount >= 6) {
      bitCount -= 6;
      text += ALPHABET.charAt((bits >> bitCount) & 63);
    }
    bits &= (1 << bitCount) - 1;
  }
  return bitCount === 0 ? text : text + ALPHABET.charAt((bits << (6 - bitCount)) & 63);
}
