export const FETCH_FORMATS = ["value", "json", "hex"] as const;
export type FetchFormat = (typeof FETCH_FORMATS)[number];
export type FetchFrom = "earliest" | "latest" | number;

export interface FetchCommandOptions {
  readonly topic: string;
  readonly directory: string;
  readonly partition: number;
  readonly from: FetchFrom;
  readonly maxRecords: number | undefined;
  readonly follow: boolean;
  readonly format: FetchFormat;
}
