/** One command that both sides were given, and what each answered. */
export interface Exchange {
  readonly command: string;
  readonly ours: string;
  readonly theirs: string;
}

/** A command that Kafka has not answered yet. */
export interface PendingExchange {
  readonly command: string;
  readonly ours: string;
  readonly theirs: Promise<string>;
}

/** Commands before the disagreement that a failure quotes. */
const QUOTED_COMMANDS = 30;
const QUOTED_CHARS = 160;

/** Waits for Kafka's answers. */
export function settle(pending: readonly PendingExchange[]): Promise<Exchange[]> {
  return Promise.all(pending.map(async ({ command, ours, theirs }) => ({ command, ours, theirs: await theirs })));
}

/** @throws Error for the first exchange in which the two sides differ, with what leads there and how to run it again */
export function expectAgreement(seed: number, exchanges: readonly Exchange[]): void {
  const at = exchanges.findIndex(({ ours, theirs }) => ours !== theirs);
  const different = exchanges[at];
  if (different === undefined) return;
  const before = exchanges.slice(Math.max(0, at - QUOTED_COMMANDS), at);
  const lines = before.map(({ command, ours }) => `  ${shorten(command)}  ->  ${shorten(ours)}`);
  const { command, ours, theirs } = different;
  throw new Error(
    [
      `we and Kafka differ; to run this history again: INTEROP_SEED=${seed} npm run test:interop`,
      at > before.length ? `  (${at - before.length} commands before)` : "",
      ...lines,
      `  ${shorten(command)}`,
      `ours:  ${ours}`,
      `Kafka: ${theirs}`,
    ].join("\n"),
  );
}

function shorten(text: string): string {
  return text.length <= QUOTED_CHARS ? text : `${text.slice(0, QUOTED_CHARS)}… (${text.length} characters)`;
}
