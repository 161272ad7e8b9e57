import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients against a broker of one node: Clients BOOTSTRAP TIME COMMAND [-- COMMAND ...]. Records are made at TIME (ms).
 *
 *   create TOPIC [key=value ...]   a topic of one partition
 *   write ROUND                    to every topic of the scenario; round 0 makes them. In each: all codecs, headers, nulls, idempotent
 *                                  producers, transactions that commit, abort and stay open, tombstones, log append time, deleted records
 *   append COUNT TOPIC ...         records of an idempotent producer
 *   settle DATA_DIR                waits until the broker has compacted and deleted what it can
 *   read FILE                      what a consumer and the admin client are told of every partition, one JSON line each: records and
 *                                  listed offsets by isolation, producers
 *
 * Bytes are Base64.
 */
public class Clients {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final Map<String, String> SMALL_SEGMENTS = Map.of("internal.segment.bytes", "20000", "index.interval.bytes", "500",
        "retention.ms", "-1");

    private static String bootstrap;
    private static long created;
    private static Admin admin;

    public static void main(String[] args) throws Exception {
        try {
            bootstrap = args[0];
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
            created = Long.parseLong(args[1]);
            for (String command : String.join(" ", Arrays.copyOfRange(args, 2, args.length)).split(" -- ")) {
                String[] words = command.split(" ");
                switch (words[0]) {
                    case "create" -> create(words[1], Arrays.copyOfRange(words, 2, words.length));
                    case "write" -> write(Integer.parseInt(words[1]));
                    case "append" -> append(Integer.parseInt(words[1]), Arrays.copyOfRange(words, 2, words.length));
                    case "settle" -> settle(Path.of(words[1]));
                    case "read" -> read(Path.of(words[1]));
                    default -> throw new IllegalArgumentException(words[0]);
                }
            }
        } catch (Throwable error) { // The launcher of single files cannot print what other threads are in.
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0); // An open transaction's producer is not closed: that would abort it.
    }

    private static void create(String topic, String... settings) throws Exception {
        Map<String, String> config = new HashMap<>(SMALL_SEGMENTS);
        for (String setting : settings) config.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(config))).all().get();
    }

    private static void write(int round) throws Exception {
        Random random = new Random(round);
        if (round == 0) {
            for (String topic : List.of("codecs", "idempotent", "transactional", "deleted")) create(topic);
            create("stamped", "message.timestamp.type=LogAppendTime");
            for (String topic : List.of("compacted", "ledger"))
                create(topic, "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "delete.retention.ms=600000");
        }
        for (String codec : CODECS) {
            var settings = Map.<String, Object>of("compression.type", codec, "enable.idempotence", "false", "linger.ms", "5");
            try (var producer = producer(settings)) {
                for (String topic : List.of("codecs", "stamped", "deleted")) {
                    for (int i = 0; i < 120; i++) producer.send(record(topic, i, random));
                    producer.send(new ProducerRecord<>(topic, 0, created, (byte[]) null, (byte[]) null));
                    producer.send(new ProducerRecord<>(topic, 0, created + 1, new byte[0], new byte[0]));
                    producer.send(new ProducerRecord<>(topic, 0, created + 2, bytes("large"), text(random, 15_000)));
                    producer.flush();
                }
            }
        }
        for (int i = 0; i < 3; i++) {
            try (var producer = producer(Map.of("compression.type", CODECS[i + 1]))) {
                for (int r = 0; r < 150; r++) producer.send(record("idempotent", r, random));
            }
        }
        transactions("transactional", round, 12, random);
        keyed("compacted", random);
        transactions("ledger", round, 20, random);
        if (round == 0) {
            var open = begun("left-open");
            for (int i = 0; i < 5; i++) open.send(record("transactional", 1000 + i, random));
            open.flush();
            transactions("transactional", 10, 6, random); // Behind it: no reader of committed records sees them.
        }
        TopicPartition deleted = new TopicPartition("deleted", 0);
        long end = admin.listOffsets(Map.of(deleted, OffsetSpec.latest())).partitionResult(deleted).get().offset();
        admin.deleteRecords(Map.of(deleted, RecordsToDelete.beforeOffset(end / 2 + 7))).all().get();
    }

    private static void transactions(String topic, int round, int count, Random random) throws Exception {
        try (var one = begun(topic + "-one-" + round); var two = begun(topic + "-two-" + round)) {
            for (int t = 0; t < count; t++) {
                for (int i = 0; i < 6; i++) {
                    one.send(keyedRecord(topic, i, random));
                    two.send(keyedRecord(topic, 3 + i, random));
                    if (i == 2) one.flush();
                }
                one.flush();
                two.flush();
                if (t % 3 == 1) one.abortTransaction(); else one.commitTransaction();
                if (t % 4 == 2) two.abortTransaction(); else two.commitTransaction();
                if (t + 1 < count) {
                    one.beginTransaction();
                    two.beginTransaction();
                }
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> begun(String id) {
        var producer = producer(Map.of("transactional.id", id, "transaction.timeout.ms", 900_000, "compression.type", CODECS[id.length() % 5]));
        producer.initTransactions();
        producer.beginTransaction();
        return producer;
    }

    private static void keyed(String topic, Random random) {
        for (String codec : CODECS) {
            try (var producer = producer(Map.of("compression.type", codec))) {
                for (int i = 0; i < 200; i++) producer.send(keyedRecord(topic, random.nextInt(60), random));
            }
        }
    }

    private static void append(int count, String[] topics) {
        Random random = new Random(count);
        try (var producer = producer(Map.of("compression.type", "zstd"))) {
            for (String topic : topics)
                for (int i = 0; i < count; i++) producer.send(keyedRecord(topic, i, random));
        }
    }

    /**
     * The active segment is never compacted; all below it is clean when the cleaner's checkpoint says its base offset. Of deleted
     * records whole segments go.
     */
    private static void settle(Path data) throws Exception {
        for (String topic : List.of("compacted", "ledger")) {
            Path checkpoint = data.resolve("cleaner-offset-checkpoint");
            await(topic + " is compacted", () -> Files.exists(checkpoint)
                && Files.readAllLines(checkpoint).contains(topic + " 0 " + baseOffsets(data, topic).get(baseOffsets(data, topic).size() - 1)));
        }
        TopicPartition deleted = new TopicPartition("deleted", 0);
        long start = admin.listOffsets(Map.of(deleted, OffsetSpec.earliest())).partitionResult(deleted).get().offset();
        Path starts = data.resolve("log-start-offset-checkpoint");
        await("deleted segments are gone", () -> baseOffsets(data, "deleted").get(1) > start && Files.readAllLines(starts).contains("deleted 0 " + start));
    }

    private static List<Long> baseOffsets(Path data, String topic) throws Exception {
        try (var files = Files.list(data.resolve(topic + "-0"))) {
            return files.map(file -> file.getFileName().toString()).filter(name -> name.endsWith(".log"))
                .map(name -> Long.parseLong(name.substring(0, 20))).sorted().toList();
        }
    }

    private static void await(String what, java.util.concurrent.Callable<Boolean> condition) throws Exception {
        for (int attempt = 0; !condition.call(); attempt++) {
            if (attempt == 1200) throw new IllegalStateException("not within two minutes: " + what);
            Thread.sleep(100);
        }
    }

    private static void read(Path file) throws Exception {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : new TreeSet<>(admin.listTopics().names().get())) partitions.add(new TopicPartition(topic, 0));
            for (IsolationLevel isolation : IsolationLevel.values()) {
                records(out, partitions, isolation);
                for (TopicPartition partition : partitions) offsets(out, partition, isolation);
            }
            var described = admin.describeProducers(partitions).all().get();
            described.forEach((partition, state) -> state.activeProducers().stream()
                .sorted(Comparator.comparingLong(producer -> producer.producerId())).forEach(producer -> out.printf(
                    "{\"kind\":\"producer\",\"topic\":\"%s\",\"producerId\":%d,\"epoch\":%d,\"lastSequence\":%d,\"lastTimestamp\":%d,\"coordinatorEpoch\":%d,\"transactionStart\":%d}%n",
                    partition.topic(), producer.producerId(), producer.producerEpoch(), producer.lastSequence(), producer.lastTimestamp(),
                    producer.coordinatorEpoch().orElse(-1), producer.currentTransactionStartOffset().orElse(-1))));
        }
    }

    private static void records(PrintWriter out, List<TopicPartition> partitions, IsolationLevel isolation) {
        try (var consumer = new KafkaConsumer<byte[], byte[]>(Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation.toString(),
                "auto.offset.reset", "earliest"), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (TopicPartition partition : partitions) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                while (consumer.position(partition) < end)
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(5))) print(out, isolation, record);
            }
        }
    }

    /** All specs, and the times of the scenario with those around them. */
    private static void offsets(PrintWriter out, TopicPartition partition, IsolationLevel isolation) throws Exception {
        Map<String, OffsetSpec> specs = new HashMap<>(Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
            "max-timestamp", OffsetSpec.maxTimestamp()));
        for (int i = 0; i < 30; i++) {
            long timestamp = created - 7 + i * 50L;
            specs.put(Long.toString(timestamp), OffsetSpec.forTimestamp(timestamp));
        }
        // Those of log append time are of about an hour later.
        for (int i = 0; i < 20; i++) {
            long timestamp = created + 3_600_000 + i * 4000L;
            specs.put(Long.toString(timestamp), OffsetSpec.forTimestamp(timestamp));
        }
        specs.put("0", OffsetSpec.forTimestamp(0));
        Map<String, org.apache.kafka.common.KafkaFuture<org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo>> answers = new HashMap<>();
        specs.forEach((name, spec) ->
            answers.put(name, admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(isolation)).partitionResult(partition)));
        for (String name : new TreeSet<>(answers.keySet())) {
            var found = answers.get(name).get();
            out.printf("{\"kind\":\"offset\",\"isolation\":\"%s\",\"topic\":\"%s\",\"spec\":\"%s\",\"offset\":%d,\"timestamp\":%d,\"epoch\":%d}%n",
                isolation, partition.topic(), name, found.offset(), found.timestamp(), found.leaderEpoch().orElse(-1));
        }
    }

    private static void print(PrintWriter out, IsolationLevel isolation, ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        record.headers().forEach(header -> headers.append(headers.isEmpty() ? "" : ",")
            .append("[\"").append(header.key()).append("\",").append(base64(header.value())).append("]"));
        out.printf("{\"kind\":\"record\",\"isolation\":\"%s\",\"topic\":\"%s\",\"offset\":%d,\"timestamp\":%d,\"type\":\"%s\",\"epoch\":%d,\"key\":%s,\"value\":%s,\"headers\":[%s]}%n",
            isolation, record.topic(), record.offset(), record.timestamp(), record.timestampType(), record.leaderEpoch().orElse(-1),
            base64(record.key()), base64(record.value()), headers);
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, Object> extra) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all", "batch.size", "4000"));
        settings.putAll(extra);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int i, Random random) {
        byte[] key = i % 5 == 0 ? null : bytes("key-" + i);
        byte[] value = i % 7 == 0 ? null : text(random, random.nextInt(400));
        // Not in order, and none twice in a batch's neighbourhood.
        var record = new ProducerRecord<>(topic, 0, created + i * 10L - random.nextInt(40), key, value);
        for (int h = 0; h < i % 4; h++) record.headers().add(h == 1 ? "" : "header-" + h, h == 2 ? null : bytes("value-" + i));
        return record;
    }

    private static ProducerRecord<byte[], byte[]> keyedRecord(String topic, int key, Random random) {
        byte[] value = random.nextInt(6) == 0 ? null : text(random, random.nextInt(300));
        return new ProducerRecord<>(topic, 0, created + random.nextInt(1500), bytes("key-" + key), value);
    }

    private static byte[] text(Random random, int length) {
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) bytes[i] = (byte) ('a' + random.nextInt(6));
        return bytes;
    }

    private static byte[] bytes(String text) { return text.getBytes(StandardCharsets.UTF_8); }

    private static String base64(byte[] bytes) { return bytes == null ? "null" : "\"" + Base64.getEncoder().encodeToString(bytes) + "\""; }
}
