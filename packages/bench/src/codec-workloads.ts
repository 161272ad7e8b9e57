import { Tidemark } from "@tidemark/server";
import type { Topic } from "@tidemark/server";
import type { CompressionCodec } from "@tidemark/wire";
import { eventText } from "./content.ts";
import { InFlight } from "./in-flight.ts";
import { roundsWorkload } from "./rounds-workload.ts";
import { peer } from "./workload.ts";
import type { Measurement, Subject, Workload } from "./workload.ts";

const CODECS: readonly CompressionCodec[] = ["none", "gzip", "snappy", "lz4", "zstd"];
const VALUE_BYTES = 100;
const CHUNK_RECORDS = 1000;
const ARRAYS_IN_FLIGHT = 8;
const STORED_CHUNKS = 200;
const STORED_CHUNKS_QUICK = 5;

/** What a codec costs a topic; what it costs alone is in the tables of the pool. */
export function codecWorkloads(): readonly Workload[] {
  const content =
    "Records of 100 B, all different, of text that compresses as JSON events do, in batches of up to 128 KiB";
  return [
    roundsWorkload({
      name: "append 100 B records by codec, flush none",
      unit: "records/s",
      explanation: `${content}; arrays of ${CHUNK_RECORDS.toLocaleString("en-US")}, ${ARRAYS_IN_FLIGHT} in flight.`,
      subjects: CODECS.map(appendSubject),
      peers: [peer("vs none", subjectName("none"))],
      opensForEachSample: true,
    }),
    roundsWorkload({
      name: "fetch 100 B records by codec",
      unit: "records/s",
      explanation: `${content}; in order, as objects, from memory (page cache).`,
      subjects: CODECS.map(fetchSubject),
      peers: [peer("vs none", subjectName("none"))],
      opensForEachSample: false,
    }),
  ];
}

function subjectName(codec: CompressionCodec): string {
  return `tidemark, ${codec}`;
}

function appendSubject(codec: CompressionCodec): Subject {
  return {
    name: subjectName(codec),
    open: async (directory) => {
      const tidemark = await Tidemark.open({ directory });
      const topic = await tidemark.topic("bench", { flush: "none", compression: codec });
      const values = differentValues();
      return {
        sample: async (budget) => {
          let count = 0;
          await appendChunks(topic, values, () => {
            if (budget.isSpent(count * VALUE_BYTES)) return false;
            count += CHUNK_RECORDS;
            return true;
          });
          return budget.rate(count);
        },
        close: () => tidemark.close(),
      };
    },
  };
}

function fetchSubject(codec: CompressionCodec): Subject {
  return {
    name: subjectName(codec),
    open: async (directory, { quick }: Measurement) => {
      const tidemark = await Tidemark.open({ directory });
      const topic = await tidemark.topic("bench", { flush: "none", compression: codec });
      let rest = quick ? STORED_CHUNKS_QUICK : STORED_CHUNKS;
      await appendChunks(topic, differentValues(), () => (rest -= 1) >= 0);
      return {
        sample: async (budget) => {
          let count = 0;
          while (!budget.isSpent()) {
            for await (const { value } of topic.fetch({ partition: 0, follow: false })) {
              if (value !== null) count += 1;
              if (count % CHUNK_RECORDS === 0 && budget.isSpent()) break;
            }
          }
          return budget.rate(count);
        },
        close: () => tidemark.close(),
      };
    },
  };
}

/** Appends an array of all `values` each time that `goesOn` says so. */
async function appendChunks(topic: Topic, values: readonly Uint8Array[], goesOn: () => boolean): Promise<void> {
  const arrays = new InFlight(ARRAYS_IN_FLIGHT);
  while (goesOn())
    await arrays.add(
      topic.append(
        values.map((value) => ({ value })),
        { partition: 0 },
      ),
    );
  await arrays.drain();
}

function differentValues(): Uint8Array[] {
  const text = eventText(CHUNK_RECORDS * VALUE_BYTES);
  return Array.from({ length: CHUNK_RECORDS }, (_, at) => text.subarray(at * VALUE_BYTES, (at + 1) * VALUE_BYTES));
}
