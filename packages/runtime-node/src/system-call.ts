import type { FileOperation } from "@tidemark/base";
import { toFileError } from "./file-errors.ts";

/** What `node:fs` calls when it is done. */
export type Callback<Result> = (error: Error | null, result: Result) => void;

/**
 * A callback-style `node:fs` call as a promise that rejects with `FileError`. The callback style skips the handle objects of
 * `fs.promises`, which cost more than a small read does.
 */
export function systemCall<Result>(
  operation: FileOperation,
  path: string,
  begin: (done: Callback<Result>) => void,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    begin((error, result) => {
      if (error === null || error === undefined) resolve(result);
      else reject(toFileError(error, operation, path));
    });
  });
}
