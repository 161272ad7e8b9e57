import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka as writer and reader of batches of every codec.
 *
 *   write DIR SEED BATCHES [key=value ...]   appends random batches, as producers encode them, to Kafka's log in DIR
 *   read DIR                                 writes to DIR.jsonl what Kafka reads there: one JSON line a record
 *
 * Several commands are separated by "--".
 * A line: offset, timestamp, type of the timestamp, sequence, codec of its batch, key, value, headers (Base64 or null).
 */
public class Codecs {
    private static final long NOW = 1_750_003_600_000L;

    public static void main(String[] args) throws Exception {
        try {
            for (String command : String.join(" ", args).split(" -- ")) {
                String[] words = command.split(" ");
                if (words[0].equals("write")) write(new File(words[1]), Long.parseLong(words[2]), Integer.parseInt(words[3]), words);
                else read(new File(words[1]));
            }
        } catch (Throwable error) { // The launcher of single files cannot print what a scheduler's threads are in.
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static void write(File dir, long seed, int batches, String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        for (int i = 4; i < args.length; i++) config.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        Files.createDirectories(dir.toPath());
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(config), 0, 0, scheduler, new BrokerTopicStats(false), Time.SYSTEM,
            900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true, Optional.empty());
        log.assignEpochStartOffset(3, 0);
        Random random = new Random(seed);
        for (int i = 0; i < batches; i++) {
            boolean idempotent = random.nextInt(4) == 0;
            int count = 1 + random.nextInt(random.nextInt(8) == 0 ? 300 : 8);
            var builder = new MemoryRecordsBuilder(ByteBuffer.allocate(4096), RecordBatch.MAGIC_VALUE_V2, codec(random),
                TimestampType.CREATE_TIME, 0, -1, idempotent ? 1000 + i : -1, (short) (idempotent ? 0 : -1), idempotent ? 0 : -1,
                false, false, -1, Integer.MAX_VALUE);
            for (int r = 0; r < count; r++) append(builder, random, i == 0 || i % 40 == 0);
            log.appendAsLeader(builder.build(), 3, AppendOrigin.CLIENT);
        }
        log.flush(true);
        log.close();
    }

    private static Compression codec(Random random) {
        return switch (random.nextInt(8)) {
            case 0 -> Compression.NONE;
            case 1 -> Compression.gzip().level(1 + random.nextInt(9)).build();
            case 2 -> Compression.gzip().build();
            case 3 -> Compression.snappy().build();
            case 4 -> Compression.lz4().level(1 + random.nextInt(17)).build();
            case 5 -> Compression.lz4().build();
            case 6 -> Compression.zstd().level(random.nextInt(3) == 0 ? -5 : 1 + random.nextInt(19)).build();
            default -> Compression.zstd().build();
        };
    }

    private static void append(MemoryRecordsBuilder builder, Random random, boolean large) {
        long timestamp = NOW - random.nextInt(1_000_000);
        byte[] key = random.nextInt(3) == 0 ? null : text(random, random.nextInt(12));
        byte[] value = random.nextInt(9) == 0 ? null : text(random, random.nextInt(large ? 40_000 : 400));
        Header[] headers = new Header[random.nextInt(3) == 0 ? random.nextInt(4) : 0];
        for (int h = 0; h < headers.length; h++)
            headers[h] = new RecordHeader(h == 1 ? "" : "header-" + h, h == 2 ? null : text(random, random.nextInt(9)));
        builder.append(timestamp, key, value, headers);
    }

    /** Compressible at times, and at times not at all. */
    private static byte[] text(Random random, int length) {
        byte[] bytes = new byte[length];
        int letters = random.nextInt(4) == 0 ? 256 : 6;
        for (int i = 0; i < length; i++) bytes[i] = (byte) ('a' + random.nextInt(letters));
        return bytes;
    }

    private static void read(File dir) throws Exception {
        StringBuilder out = new StringBuilder();
        for (File file : List.of(dir.listFiles((d, name) -> name.endsWith(".log"))).stream().sorted().toList()) {
            try (FileRecords records = FileRecords.open(file, false)) {
                for (RecordBatch batch : records.batches()) {
                    batch.ensureValid();
                    for (Record record : batch) print(out, batch, record);
                }
            }
        }
        Files.writeString(new File(dir + ".jsonl").toPath(), out);
    }

    private static void print(StringBuilder out, RecordBatch batch, Record record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers())
            headers.append(headers.isEmpty() ? "" : ",").append("[\"").append(header.key()).append("\",").append(base64(header.value())).append("]");
        out.append(String.format("{\"offset\":%d,\"timestamp\":%d,\"type\":\"%s\",\"sequence\":%d,\"codec\":\"%s\",\"key\":%s,\"value\":%s,\"headers\":[%s]}%n",
            record.offset(), record.timestamp(), batch.timestampType(), record.sequence(), batch.compressionType().name,
            base64(bytes(record.hasKey(), record.key())), base64(bytes(record.hasValue(), record.value())), headers));
    }

    private static byte[] bytes(boolean present, ByteBuffer buffer) {
        if (!present) return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? "null" : "\"" + Base64.getEncoder().encodeToString(bytes) + "\"";
    }
}
