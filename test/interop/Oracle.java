import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.function.Supplier;
import java.util.regex.Pattern;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's own epoch cache, checkpoint file and log behind a line protocol: the judge of the differential suites.
 * One command a line on standard input; one reply a line on standard output, in order: "ok ..." or "error CLASS MESSAGE".
 * An entry is EPOCH@START.
 *
 *   epoch new | assign EPOCH OFFSET | end EPOCH LEO | truncate-end OFFSET | truncate-start OFFSET | entries
 *       of OFFSET | previous EPOCH | next EPOCH | range FROM TO | clear
 *   checkpoint read PATH | load PATH (into a cache) | write PATH ENTRY...
 *   log open DIR LOG_START RECOVERY_POINT clean|unclean [key=value ...] | lead EPOCH | append EPOCH BASE64 | follow EPOCH BASE64
 *       list-offset TIMESTAMP (or -1 latest, -2 earliest, -3 of the largest timestamp, -4 earliest local) | read OFFSET MAX_BYTES | truncate OFFSET | truncate-fully OFFSET | retain | delete-records OFFSET (and retain) | cleanable CLEAN_END|none NOW | clean FIRST_DIRTY FIRST_UNCLEANABLE NOW | roll | close | end-of-epoch EPOCH | state
 */
public class Oracle {
    private static final TopicPartition PARTITION = new TopicPartition("oracle", 0);
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    private static LeaderEpochFileCache epochs;
    private static UnifiedLog log;

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            String reply;
            try {
                String[] words = line.trim().split("\\s+");
                String[] rest = Arrays.copyOfRange(words, 1, words.length);
                reply = switch (words[0]) {
                    case "epoch" -> epoch(rest);
                    case "checkpoint" -> checkpoint(rest);
                    case "log" -> log(rest);
                    default -> "error Usage " + words[0];
                };
            } catch (Throwable error) {
                reply = "error " + error.getClass().getSimpleName() + " " + String.valueOf(error.getMessage()).replace('\n', ' ');
            }
            out.print(reply.strip() + "\n");
            out.flush();
        }
        if (log != null) log.close();
        System.exit(0);
    }

    private static String epoch(String[] words) throws Exception {
        switch (words[0]) {
            case "new" -> {
                Path dir = Files.createTempDirectory("epochs");
                epochs = new LeaderEpochFileCache(PARTITION, checkpointFile(LeaderEpochCheckpointFile.newFile(dir.toFile())), SCHEDULER);
            }
            case "assign" -> epochs.assign(Integer.parseInt(words[1]), Long.parseLong(words[2]));
            case "end" -> {
                var answer = epochs.endOffsetFor(Integer.parseInt(words[1]), Long.parseLong(words[2]));
                return "ok " + answer.getKey() + " " + answer.getValue();
            }
            case "truncate-end" -> epochs.truncateFromEndAsyncFlush(Long.parseLong(words[1]));
            case "truncate-start" -> epochs.truncateFromStartAsyncFlush(Long.parseLong(words[1]));
            case "clear" -> epochs.clearAndFlush();
            case "of" -> { return "ok " + show(epochs.epochForOffset(Long.parseLong(words[1]))); }
            case "previous" -> { return "ok " + show(epochs.previousEpoch(Integer.parseInt(words[1]))); }
            case "next" -> { return "ok " + show(epochs.nextEpoch(Integer.parseInt(words[1]))); }
            case "range" -> { return "ok " + show(epochs.epochEntriesInRange(Long.parseLong(words[1]), Long.parseLong(words[2]))); }
            case "entries" -> { return "ok " + show(epochs.epochEntries()); }
            default -> { return "error Usage " + words[0]; }
        }
        return "ok";
    }

    private static String checkpoint(String[] words) throws Exception {
        LeaderEpochCheckpointFile file = checkpointFile(new File(words[1]));
        if (words[0].equals("read")) return "ok " + show(file.read());
        if (words[0].equals("load")) return "ok " + show(new LeaderEpochFileCache(PARTITION, file, SCHEDULER).epochEntries());
        if (!words[0].equals("write")) return "error Usage " + words[0];
        List<EpochEntry> entries = new ArrayList<>();
        for (int i = 2; i < words.length; i++) {
            String[] parts = words[i].split("@");
            entries.add(new EpochEntry(Integer.parseInt(parts[0]), Long.parseLong(parts[1])));
        }
        file.write(entries);
        return "ok";
    }

    private static String log(String[] words) throws Exception {
        switch (words[0]) {
            case "open" -> {
                Map<String, Object> config = new HashMap<>();
                for (int i = 5; i < words.length; i++) config.put(words[i].split("=", 2)[0], words[i].split("=", 2)[1]);
                File dir = new File(words[1]);
                Files.createDirectories(dir.toPath());
                log = UnifiedLog.create(dir, new LogConfig(config), Long.parseLong(words[2]), Long.parseLong(words[3]), SCHEDULER,
                    new BrokerTopicStats(false), new StandingTime(), 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
                    new LogDirFailureChannel(1), words[4].equals("clean"), Optional.empty());
            }
            // What Partition.makeLeader does first.
            case "lead" -> log.assignEpochStartOffset(Integer.parseInt(words[1]), log.logEndOffset());
            case "append" -> {
                var info = log.appendAsLeader(records(words[2]), Integer.parseInt(words[1]));
                return "ok " + info.firstOffset() + " " + info.lastOffset();
            }
            case "follow" -> {
                var info = log.appendAsFollower(records(words[2]), Integer.parseInt(words[1]));
                return "ok " + info.firstOffset() + " " + info.lastOffset();
            }
            case "read" -> {
                FetchDataInfo info = log.read(Long.parseLong(words[1]), Integer.parseInt(words[2]), FetchIsolation.LOG_END, true);
                ByteBuffer bytes = ByteBuffer.allocate(info.records.sizeInBytes());
                if (info.records instanceof FileRecords file) file.readInto(bytes, 0);
                else if (info.records instanceof MemoryRecords memory) { bytes.put(memory.buffer().duplicate()); bytes.flip(); }
                return "ok " + Base64.getEncoder().encodeToString(Arrays.copyOf(bytes.array(), bytes.limit()));
            }
            case "truncate" -> {
                // A segment learns of its largest timestamp at the first use. Were that after the cut, one whose time index the cut has
                // emptied would count as having no timestamps.
                for (LogSegment segment : log.logSegments()) segment.maxTimestampSoFar();
                log.truncateTo(Long.parseLong(words[1]));
            }
            case "truncate-fully" -> log.truncateFullyAndStartAt(Long.parseLong(words[1]), Optional.empty());
            // All is committed here: no replica lags.
            case "retain" -> {
                log.updateHighWatermark(log.logEndOffset());
                log.deleteOldSegments();
            }
            case "delete-records" -> {
                log.updateHighWatermark(log.logEndOffset());
                log.maybeIncrementLogStartOffset(Long.parseLong(words[1]), LogStartOffsetIncrementReason.ClientRecordDeletion);
                log.deleteOldSegments();
            }
            case "list-offset" -> {
                var found = log.fetchOffsetByTimestamp(Long.parseLong(words[1]), Optional.empty()).timestampAndOffsetOpt();
                return "ok " + found.map(at -> at.offset + " " + at.timestamp + " " + at.leaderEpoch.orElse(-1)).orElse("none");
            }
            // What the cleaner finds to do, and one pass of it; all is committed here.
            case "cleanable" -> {
                log.updateHighWatermark(log.logEndOffset());
                var method = LogCleanerManager.class.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
                method.setAccessible(true);
                Optional<Long> clean = words[1].equals("none") ? Optional.empty() : Optional.of(Long.parseLong(words[1]));
                var found = Pattern.compile("=(\\d+)").matcher(method.invoke(null, log, clean, Long.parseLong(words[2])).toString());
                found.find();
                long firstDirty = Long.parseLong(found.group(1));
                found.find();
                LogToClean dirty = new LogToClean(log, firstDirty, Long.parseLong(found.group(1)), false);
                return "ok " + dirty.firstDirtyOffset() + " " + dirty.firstUncleanableOffset();
            }
            case "clean" -> {
                Time time = new StandingTime();
                Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner", "bytes", time);
                Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 16), 1 << 12, 1 << 20, 0.9, throttler, time, partition -> { });
                LogToClean dirty = new LogToClean(log, Long.parseLong(words[1]), Long.parseLong(words[2]), false);
                return "ok " + cleaner.doClean(dirty, Long.parseLong(words[3])).getKey();
            }
            case "roll" -> { return "ok " + log.roll().baseOffset(); }
            case "close" -> {
                // What the log has scheduled (flushes after a roll, epoch files after a truncation) runs beside it; a close
                // in between would leave files that the next open must not see yet.
                finishScheduled();
                log.close();
                log = null;
                finishScheduled();
            }
            case "end-of-epoch" -> {
                return "ok " + log.endOffsetForEpoch(Integer.parseInt(words[1])).map(e -> e.epoch() + " " + e.offset()).orElse("none");
            }
            case "state" -> { return state(); }
            default -> { return "error Usage " + words[0]; }
        }
        return "ok";
    }

    private static LeaderEpochCheckpointFile checkpointFile(File path) throws IOException {
        return new LeaderEpochCheckpointFile(path, new LogDirFailureChannel(1));
    }

    private static MemoryRecords records(String base64) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(base64)));
    }

    private static String state() {
        StringJoiner segments = new StringJoiner(",");
        log.logSegments().forEach(segment -> segments.add(segment.baseOffset() + ":" + segment.size()));
        return "ok start=" + log.logStartOffset() + " end=" + log.logEndOffset() + " segments=" + segments
            + " entries=" + show(log.leaderEpochCache().epochEntries());
    }

    /** The scheduler has one thread, which runs what is due in the order of the calls. */
    private static void finishScheduled() throws InterruptedException {
        CountDownLatch isDone = new CountDownLatch(1);
        SCHEDULER.scheduleOnce("finish-scheduled", isDone::countDown);
        isDone.await();
    }

    private static String show(OptionalInt value) {
        return value.isPresent() ? String.valueOf(value.getAsInt()) : "none";
    }

    private static String show(List<EpochEntry> entries) {
        StringJoiner all = new StringJoiner(" ");
        entries.forEach(entry -> all.add(entry.epoch() + "@" + entry.startOffset()));
        return all.toString();
    }

    /** Stands still an hour after the driver's first timestamp, so that a seed gives the same bytes and answers on any day. */
    private static final class StandingTime implements Time {
        @Override public long milliseconds() { return 1_750_003_600_000L; }
        @Override public long hiResClockMs() { return milliseconds(); }
        @Override public long nanoseconds() { return milliseconds() * 1_000_000; }
        @Override public void sleep(long ms) { }
        @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { throw new UnsupportedOperationException(); }
    }
}
