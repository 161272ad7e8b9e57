import type { Mutant } from "./mutant.ts";

const REPAIR = "packages/log/src/repair.ts";
const SEGMENT_COPY = "packages/log/src/segment-copy.ts";

/** Known bugs of `tidemark repair`: a crash in the middle of it would lose more than was given up, or call it a loss once more. */
export const REPAIR_MUTANTS: readonly Mutant[] = [
  {
    id: "P22",
    title: "repair takes the damaged segment away while the name of its copy is in the page cache only",
    edits: [
      {
        file: REPAIR,
        find: `  await files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX);
  await files.syncDirectory(directory);
`,
        replace: `  await files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX);
`,
      },
    ],
  },
  {
    id: "P23",
    title: "repair puts a copy in the place of a damaged segment whose bytes are in the page cache only",
    edits: [{ file: SEGMENT_COPY, find: `    await copy.sync();\n`, replace: `` }],
  },
  {
    id: "P24",
    title: "repair leaves it to the next append where a log goes on whose end it gave up",
    edits: [
      {
        file: REPAIR,
        find: `  const last = await LogSegment.create(settings, recoveryPoint);
  await last.close();
`,
        replace: ``,
      },
    ],
  },
];
