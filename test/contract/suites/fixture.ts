import { expect, test } from "vitest";
import type { FileErrorCode, FileOperation } from "@tidemark/base";
import { FileError } from "@tidemark/base";

/**
 * What an implementation hands to a contract suite; one is made for every test.
 *
 * Test bodies await promises of the port alone, so that a simulated world can decide when they go on.
 */
export interface Fixture {
  /** Runs a test body to its end. A simulated world moves its clock in here until the body is done; left out, the body just runs. */
  run?(body: () => Promise<void>): Promise<void>;
  /** Takes away what the fixture made. Runs after the body, whether or not it passed. */
  dispose(): Promise<void>;
}

/** One test of a contract: `body` must make at least one assertion. */
export function contractTest<F extends Fixture>(
  makeFixture: () => Promise<F>,
  name: string,
  body: (fixture: F) => Promise<void>,
): void {
  test(name, async () => {
    expect.hasAssertions();
    const fixture = await makeFixture();
    try {
      await (fixture.run === undefined ? body(fixture) : fixture.run(() => body(fixture)));
    } finally {
      await fixture.dispose();
    }
  });
}

/** The call must reject (not throw) with a `FileError` that names the code, the operation and, if given, the path. */
export async function expectFileError(
  call: () => Promise<unknown>,
  code: FileErrorCode | readonly FileErrorCode[],
  operation: FileOperation,
  path?: string,
): Promise<void> {
  const promise = call();
  const error = await promise.then(
    (value) => expect.fail(`${operation} should reject with ${code.toString()} but gave ${String(value)}`),
    (reason: unknown) => reason,
  );
  expectIsFileError(error, code, operation, path);
}

/** As `expectFileError`, for the direct calls. */
export function expectFileErrorNow(
  call: () => unknown,
  code: FileErrorCode,
  operation: FileOperation,
  path?: string,
): void {
  let error: unknown;
  try {
    call();
  } catch (thrown) {
    error = thrown;
  }
  expectIsFileError(error, code, operation, path);
}

function expectIsFileError(
  error: unknown,
  code: FileErrorCode | readonly FileErrorCode[],
  operation: FileOperation,
  path: string | undefined,
): void {
  expect(error).toBeInstanceOf(FileError);
  if (!(error instanceof FileError)) return;
  expect(typeof code === "string" ? [code] : code).toContain(error.code);
  expect(error.operation).toBe(operation);
  if (path !== undefined) expect(error.path).toBe(path);
}

/** `length` bytes that differ from place to place and between seeds, so that a shift or a mix-up shows. */
export function patternBytes(length: number, seed = 1): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  let state = Math.imul(seed, 0x9e37_79b1) >>> 0;
  for (let index = 0; index < length; index++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[index] = state >>> 24;
  }
  return bytes;
}

/** Equality of long byte strings with a short report: `toEqual` would print megabytes. */
export function expectSameBytes(actual: Uint8Array, expected: Uint8Array): void {
  expect(actual.length).toBe(expected.length);
  expect(actual.findIndex((byte, index) => byte !== expected[index])).toBe(-1);
}
