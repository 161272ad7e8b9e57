import type { NodeScript } from "./node-run.ts";

const FIRST_EPOCH = 3;

export const NODE_SCRIPTS: readonly NodeScript[] = [
  {
    name: "several partitions in one directory",
    async play(run) {
      await run.open();
      await run.lead(FIRST_EPOCH);
      await run.partition(0).append(1, 2);
      await run.partition(1).append(1);
      await run.partition(0).roll();
      await run.partition(1).append(2, 1);
      await run.partition(0).append(1);
    },
  },
  {
    name: "clean stop, start, kill",
    async play(run) {
      await run.open();
      await run.lead(FIRST_EPOCH);
      await run.partition(0).append(1, 2);
      await run.close();
      await run.open();
      await run.lead(FIRST_EPOCH + 1);
      await run.partition(1).append(1);
      await run.partition(0).append(1);
      run.killProcess();
      await run.open();
      await run.lead(FIRST_EPOCH + 2);
      await run.partition(1).append(1);
    },
  },
  {
    name: "checkpoint files rewritten around a truncation",
    async play(run) {
      await run.open();
      await run.lead(FIRST_EPOCH);
      await run.partition(0).append(1, 2);
      await run.partition(1).append(1);
      await run.close();
      await run.open();
      await run.partition(0).truncateTo(1);
      await run.close();
      await run.open();
      await run.lead(FIRST_EPOCH + 1);
      await run.partition(0).append(1);
    },
  },
];
