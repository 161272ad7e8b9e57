import { ANOMALIES } from "./history.ts";

/** What a rule says, in words for a person who never saw the project. */
export interface Rule {
  /** In a few words. */
  readonly rule: string;
  /** What it demands, and what for. */
  readonly meaning: string;
}

const FROZEN =
  "Some brokers stay dead, stopped or cut off for ever; the others could go on without them, and have to, within bounded time.";

/** The rules of `Checker` and `simulate`, by id. */
export const RULES: ReadonlyMap<string, Rule> = new Map([
  [
    "S1",
    {
      rule: "a committed record stays",
      meaning:
        "A record below a leader's HW is committed: clients were told that it is safe. It must be the same for ever, on every replica that counts it as committed, and every later leader must have it.",
    },
  ],
  [
    "S2",
    {
      rule: "the same offset and epoch is the same record",
      meaning:
        "One leader writes each epoch, once. Two replicas that hold the same offset with the same epoch must hold the same bytes there, and the same history before it.",
    },
  ],
  [
    "S3",
    {
      rule: "one leader an epoch, and epochs only grow",
      meaning:
        "Two leaders in one epoch would write different records under one name; an epoch that falls would hide which record is newer.",
    },
  ],
  [
    "S4",
    {
      rule: "members of the ISR hold all that was committed",
      meaning:
        "Any member of the ISR may be the next leader. One that lacks a committed record would lose it for everybody.",
    },
  ],
  [
    "S5",
    {
      rule: "the HW moves only over what the ISR holds",
      meaning:
        "A record counts as committed when every replica that is in the ISR, or being taken into it, has it, and min.insync.replicas at least. A leader that moves its HW earlier tells clients that a record is safe which is not.",
    },
  ],
  [
    "S6",
    {
      rule: "log start <= HW <= LEO, and a leader's HW never falls",
      meaning:
        "A replica cannot count records as committed that it does not have, nor take back what it told: a record that was deleted for somebody stays deleted, too.",
    },
  ],
  [
    "S7",
    {
      rule: "no replica cuts below the HW that it knows",
      meaning:
        "What a replica knows to be committed must never be cut from its log, and only what somebody had deleted goes from its begin.",
    },
  ],
  [
    "S8",
    {
      rule: "a replica cuts only what its leader lacks",
      meaning:
        "After a change of leaders a follower cuts its log back to where it agrees with the new leader, and no further. A record that the leader has as well may be committed: until the follower has fetched it again there is one copy less, and if the leader dies meanwhile the record is gone.",
    },
  ],
  [
    "S9",
    {
      rule: "the epoch file agrees with the log",
      meaning:
        "Replicas find out by epochs where their logs part. A replica whose list of epochs is wrong cuts at the wrong place.",
    },
  ],
  [
    "S12",
    {
      rule: "acknowledged means on the disks",
      meaning:
        "With flush `always` a record is acknowledged when it is on the disks of min.insync.replicas, not only in memory.",
    },
  ],
  [
    "S13",
    {
      rule: "a restart finds what was written",
      meaning:
        "A process that was killed finds everything that it had written; a machine that lost power, everything that it had flushed.",
    },
  ],
  [
    "S14",
    {
      rule: "a failed disk takes nothing in",
      meaning:
        "After a write or a sync has failed nobody knows what the disk holds: its log ends where it did, and its broker neither leads nor follows until it is started anew.",
    },
  ],
  [
    "S15",
    {
      rule: "consumers read from where they ask",
      meaning:
        "The first batch of an answer is the one that holds the offset which was asked for; below the HW there always is one.",
    },
  ],
  [
    "S16",
    {
      rule: "consumers read only what is committed",
      meaning: "A record that a consumer has seen must not disappear or change afterwards.",
    },
  ],
  [
    "S17",
    {
      rule: "a batch is stored once",
      meaning: "A producer that sends a batch again, since no answer came, must not make a second copy of it.",
    },
  ],
  [
    "S19",
    {
      rule: "who joins the ISR has reached the leader's epoch",
      meaning:
        "A replica is in sync only when its log reaches the offset at which the present leader began: below it the HW proves nothing.",
    },
  ],
  [
    "S22",
    {
      rule: "no replica gives up, and what waits has a bound",
      meaning:
        "Under the faults of this history every replica can go on; one that stops takes part no more. A broker never has more questions out, nor more appends waiting, than somebody asked for: what grows without a bound ends in a process without memory.",
    },
  ],
  [
    "S23",
    {
      rule: "the controller's decisions are consistent",
      meaning: "The leader is a member of the ISR, and the numbers of the controller's decisions only grow.",
    },
  ],
  [
    "S24",
    {
      rule: "at rest, all logs are equal",
      meaning: "When the faults are over and everything has come to rest, all replicas hold the same bytes.",
    },
  ],
  [
    "S25",
    {
      rule: "a leader never takes a follower to be further than it is",
      meaning:
        "The HW is computed from what followers have. A leader that believes in records which a follower lacks commits too early.",
    },
  ],
  [
    "S26",
    {
      rule: "at rest, files and look-ups are right",
      meaning:
        "When everything has come to rest, the files of each broker are what `tidemark verify` calls sound, and each offset and each time is found where it is.",
    },
  ],
  [
    "S27",
    {
      rule: "a log knows its producers as its batches tell",
      meaning:
        "A log that forgot a producer's last batch would take it a second time; one that remembers a batch that it does not have would refuse what comes next.",
    },
  ],
  ["L1", { rule: "the core gets a leader that it knows", meaning: FROZEN }],
  [
    "L2",
    {
      rule: "what clients began comes to an end, and an append where nothing is amiss is answered at once",
      meaning:
        "Followers hear of new records as they come. If an append is answered only when somebody's wait is over, or never, a message that should have been sent was not.",
    },
  ],
  ["L3", { rule: "the core gets in sync", meaning: FROZEN }],
  ["L4", { rule: "what is written gets committed", meaning: FROZEN }],
  [
    "L5",
    {
      rule: "at rest, nothing happens for nothing",
      meaning:
        "When nobody wants anything, nobody is elected, the ISR stays as it is, and brokers say little to each other.",
    },
  ],
  [
    "L6",
    {
      rule: "at rest, nothing grows",
      meaning:
        "Timers, open files and requests that become more while nobody wants anything were forgotten by somebody.",
    },
  ],
]);

/** What clients of a log may never see, by id. */
const CLIENT_RULES: ReadonlyMap<string, Rule> = new Map(
  Object.entries(ANOMALIES).map(([id, anomaly]) => {
    const [name = "", meaning = ""] = anomaly.split(": ");
    return [id, { rule: `clients see no ${name}`, meaning: `What clients saw is wrong in itself: ${meaning}.` }];
  }),
);

/** For what ends a run and is no broken rule: nothing moves any more, or an error that nobody expected. */
const NO_RULE: Rule = {
  rule: "the cluster comes to rest",
  meaning:
    "When the faults are over, all replicas agree within bounded time and no part of the engine throws an error that nobody handles.",
};

/** A failure as `SeedReport` tells it, taken apart. */
export function parseFailure(failure: string): { readonly id: string; readonly what: string; readonly rule: Rule } {
  const [, id = "", what = ""] = /^([CLS]\d+): (.*)/su.exec(failure) ?? [];
  const rule = RULES.get(id) ?? CLIENT_RULES.get(id);
  return rule === undefined
    ? { id: "liveness", what: failure.split("\n", 1)[0] ?? "", rule: NO_RULE }
    : { id, what, rule };
}
