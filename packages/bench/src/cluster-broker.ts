/** One broker of the cluster workload, a process of its own; its parent tells it where, and ends it by disconnecting. */
import { Broker } from "@tidemark/server";
import type { BrokerOptions } from "@tidemark/server";

process.once("message", (options) => {
  void open(options as BrokerOptions);
});
process.once("disconnect", () => process.exit());

async function open(options: BrokerOptions): Promise<void> {
  const broker = await Broker.open(options);
  process.send?.({ port: broker.port });
}
