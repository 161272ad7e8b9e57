import { fileURLToPath } from "node:url";
import type { Mutant } from "@tidemark/simulator";
import { MutantApplication } from "@tidemark/simulator";
import { createServer } from "vite";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Loads a module, and all sources that it needs, once more with a mutant in them, and hands it to `use`.
 * @param file its name in the package of simulations, or a path from the root of the repository
 * @throws Error when a place of the mutant is gone or was not loaded
 */
export async function withMutant<Result>(
  mutant: Mutant,
  file: string,
  use: (module: unknown) => Promise<Result>,
): Promise<Result> {
  const application = new MutantApplication(mutant);
  const conditions = ["tidemark-source"];
  const server = await createServer({
    configFile: false,
    root: ROOT,
    logLevel: "error",
    appType: "custom",
    server: { middlewareMode: true, hmr: false, ws: false, watch: null },
    optimizeDeps: { noDiscovery: true, include: [] },
    resolve: { conditions },
    ssr: {
      resolve: {
        conditions: [...conditions, "module", "node", "development|production"],
        externalConditions: [...conditions, "node"],
      },
    },
    plugins: [
      {
        name: "tidemark:mutant",
        enforce: "pre",
        transform: (source, id) => application.apply(id.split("?")[0] ?? id, source),
      },
    ],
  });
  try {
    const module: unknown = await server.ssrLoadModule(
      ROOT + (file.includes("/") ? file : `packages/simulation/src/${file}`),
    );
    const result = await use(module);
    // A command line loads what a command needs when it is run.
    application.assertComplete();
    return result;
  } finally {
    await server.close();
  }
}
