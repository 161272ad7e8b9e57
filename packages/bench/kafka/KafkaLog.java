import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.TreeMap;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's own log class, measured behind a line protocol: what its engine does without network and clients. One command a line
 * on standard input, one answer a line on standard output, in order: "ok NUMBER..." or "error WHAT". One log is open at a time.
 *
 *   open RECOVERY_POINT clean|unclean DIR    answers: nanoseconds, log end offset. The directory is there, and is named TOPIC-PARTITION
 *   close
 *   append encoded|records none|always RECORD_BYTES RECORDS_PER_BATCH DURATION_MS BYTES_MAX [latency]
 *       answers: nanoseconds, batches, bytes of one batch, and with `latency` NANOSECONDS:COUNT of the appends, to three digits
 *   slices SLICE_BYTES DURATION_MS           all batches in order, as bytes: nanoseconds, bytes
 *   scan DURATION_MS                         all records in order, as objects: nanoseconds, records
 *   points DURATION_MS                       single records by offset, in no order: nanoseconds, records
 *
 * DURATION_MS 0 means no limit of time, BYTES_MAX 0 none of bytes.
 */
public class KafkaLog {
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    private static final int SLICE_BYTES = 1 << 20;
    private static UnifiedLog log;
    /** Where results go that nothing else looks at, so that the work cannot be left out. */
    private static volatile long sink;

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            String answer;
            try {
                answer = "ok " + run(line);
            } catch (Throwable error) {
                answer = "error " + error.toString().replace('\n', ' ');
            }
            out.println(answer);
        }
        System.exit(0);
    }

    private static String run(String line) throws Exception {
        String[] words = line.split(" ", 4);
        return switch (words[0]) {
            case "open" -> open(Long.parseLong(words[1]), words[2].equals("clean"), new File(words[3]));
            case "close" -> close();
            case "append" -> append(line.split(" "));
            case "slices" -> slices(Integer.parseInt(words[1]), new Limits(words[2], "0"));
            case "scan" -> scan(new Limits(words[1], "0"));
            case "points" -> points(new Limits(words[1], "0"));
            default -> throw new IllegalArgumentException("no command " + words[0]);
        };
    }

    /** Until the time is over or the bytes are there; the first question is never answered with yes. */
    private static final class Limits {
        private final long durationNs, bytesMax;
        private final long startNs = System.nanoTime();
        private boolean hasBegun;

        Limits(String durationMs, String bytesMax) {
            this.durationNs = Long.parseLong(durationMs) * 1_000_000L;
            this.bytesMax = Long.parseLong(bytesMax);
        }

        boolean areReached(long bytes) {
            if (!hasBegun) {
                hasBegun = true;
                return false;
            }
            return (bytesMax > 0 && bytes >= bytesMax) || (durationNs > 0 && elapsedNs() >= durationNs);
        }

        long elapsedNs() {
            return System.nanoTime() - startNs;
        }
    }

    private static String open(long recoveryPoint, boolean isClean, File directory) throws Exception {
        if (log != null) throw new IllegalStateException("a log is open");
        long start = System.nanoTime();
        LogConfig config = new LogConfig(Map.of("max.message.bytes", 64 << 20));
        log = UnifiedLog.create(directory, config, 0L, recoveryPoint, SCHEDULER, new BrokerTopicStats(false), Time.SYSTEM, 900_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), isClean, Optional.empty());
        return (System.nanoTime() - start) + " " + log.logEndOffset();
    }

    private static String close() {
        UnifiedLog closing = log;
        log = null;
        closing.close();
        return "";
    }

    private static String append(String[] words) throws Exception {
        boolean isEncodedBefore = words[1].equals("encoded");
        boolean isDurable = words[2].equals("always");
        byte[] value = text(Integer.parseInt(words[3]));
        int recordsPerBatch = Integer.parseInt(words[4]);
        ByteBuffer memory = ByteBuffer.allocate(recordsPerBatch * (value.length + 32) + 128);
        ByteBuffer encoded = encode(memory.duplicate(), value, recordsPerBatch).buffer();
        int batchBytes = encoded.remaining();
        TreeMap<Long, Integer> latencies = words.length > 7 ? new TreeMap<>() : null;
        Limits limits = new Limits(words[5], words[6]);
        long batches = 0;
        for (; !limits.areReached(batches * batchBytes); batches += 1) {
            long start = latencies == null ? 0 : System.nanoTime();
            MemoryRecords records;
            if (isEncodedBefore) {
                encoded.putLong(0, 0L); // As a producer sends it; the append before stamped its own.
                records = MemoryRecords.readableRecords(encoded.duplicate());
            } else {
                records = encode(memory.duplicate(), value, recordsPerBatch);
            }
            log.appendAsLeader(records, 0);
            if (isDurable) log.flush(false);
            if (latencies != null) latencies.merge(threeDigits(System.nanoTime() - start), 1, Integer::sum);
        }
        StringJoiner answer = new StringJoiner(" ").add(limits.elapsedNs() + " " + batches + " " + batchBytes);
        if (latencies != null) latencies.forEach((nanoseconds, count) -> answer.add(nanoseconds + ":" + count));
        return answer.toString();
    }

    private static long threeDigits(long number) {
        long unit = 1;
        while (number / unit >= 1000) unit *= 10;
        return number / unit * unit;
    }

    private static MemoryRecords encode(ByteBuffer memory, byte[] value, int count) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(memory, Compression.NONE, TimestampType.CREATE_TIME, 0L);
        for (int at = 0; at < count; at += 1) builder.append(1_700_000_000_000L, null, value);
        return builder.build();
    }

    private static byte[] text(int bytes) {
        byte[] text = new byte[bytes];
        for (int at = 0; at < bytes; at += 1) text[at] = (byte) (' ' + at * 31 % 95);
        return text;
    }

    private static String slices(int sliceBytes, Limits limits) throws Exception {
        ByteBuffer slice = ByteBuffer.allocateDirect(sliceBytes);
        long bytes = 0, offset = 0, end = log.logEndOffset();
        while (!limits.areReached(bytes)) {
            FetchDataInfo fetched = log.read(offset, sliceBytes, FetchIsolation.LOG_END, true);
            slice.clear();
            ((FileRecords) fetched.records).readInto(slice, 0);
            bytes += slice.remaining();
            offset = endOfSlice(slice);
            if (offset >= end) offset = 0;
        }
        return limits.elapsedNs() + " " + bytes;
    }

    /** The offset after the last whole batch. */
    private static long endOfSlice(ByteBuffer slice) {
        long end = 0;
        for (int at = 0; at + 61 <= slice.limit(); ) {
            int sizeInBytes = 12 + slice.getInt(at + 8);
            if (at + sizeInBytes > slice.limit()) break;
            end = slice.getLong(at) + slice.getInt(at + 23) + 1;
            at += sizeInBytes;
        }
        return end;
    }

    private static String scan(Limits limits) throws Exception {
        long count = 0, sum = 0, offset = 0, end = log.logEndOffset();
        while (!limits.areReached(0)) {
            FetchDataInfo fetched = log.read(offset, SLICE_BYTES, FetchIsolation.LOG_END, true);
            ByteBuffer slice = ByteBuffer.allocate(fetched.records.sizeInBytes());
            ((FileRecords) fetched.records).readInto(slice, 0);
            for (RecordBatch batch : MemoryRecords.readableRecords(slice).batches()) {
                batch.ensureValid(); // A consumer checks the CRC too.
                for (Record record : batch) {
                    sum += record.valueSize();
                    count += 1;
                }
                offset = batch.lastOffset() + 1;
            }
            if (offset >= end) offset = 0;
        }
        sink = sum;
        return limits.elapsedNs() + " " + count;
    }

    private static String points(Limits limits) throws Exception {
        long count = 0, sum = 0, end = log.logEndOffset();
        for (int random = 1; !limits.areReached(0); count += 1) {
            random = random * 1_664_525 + 1_013_904_223;
            long offset = (random >>> 1) % end;
            FetchDataInfo fetched = log.read(offset, 1, FetchIsolation.LOG_END, true);
            ByteBuffer slice = ByteBuffer.allocate(fetched.records.sizeInBytes());
            ((FileRecords) fetched.records).readInto(slice, 0);
            RecordBatch batch = MemoryRecords.readableRecords(slice).batches().iterator().next();
            batch.ensureValid();
            for (Record record : batch) {
                if (record.offset() < offset) continue;
                sum += record.valueSize();
                break;
            }
        }
        sink = sum;
        return limits.elapsedNs() + " " + count;
    }
}
