// Plays the told stories once more and writes their pages: `npm run histories`.
import { mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { renderHistory } from "@tidemark/console";
import { EXAMPLES, recordExample } from "./example-histories.ts";

const directory = fileURLToPath(new URL("../../docs/histories/", import.meta.url));
await mkdir(directory, { recursive: true });
for (const example of EXAMPLES) {
  const page = renderHistory(await recordExample(example));
  await writeFile(`${directory}${example.file}`, page);
  console.log(`docs/histories/${example.file}: ${page.length} characters`);
}
