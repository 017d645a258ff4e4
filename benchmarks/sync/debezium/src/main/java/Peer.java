import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.SerializationFormat;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/**
 * Reads one journal of a live server through Debezium's embedded engine, and counts row changes.
 *
 * Arguments: "json" or "objects", the form in which changes reach the consumer; the server's port;
 * user; password; the journal; the table whose first change ends the reading.
 */
public final class Peer {
    private static final String NAME = "bench";
    private static final long JOURNAL_START = 4;

    private static String journal;

    private final CountDownLatch ended = new CountDownLatch(1);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final String lastTopic;
    private long changes;

    private Peer(String lastTable) {
        this.lastTopic = NAME + "." + lastTable;
    }

    /** An offset store in memory that begins at the start of the journal. */
    public static final class StartOfJournal extends MemoryOffsetBackingStore {
        @Override
        public void configure(WorkerConfig config) {
            super.configure(config);
            data.put(
                    utf8(String.format("[\"%s\",{\"server\":\"%s\"}]", NAME, NAME)),
                    utf8(String.format("{\"file\":\"%s\",\"pos\":%d}", journal, JOURNAL_START)));
        }

        @Override
        public Set<Map<String, Object>> connectorPartitions(String connector) {
            return Set.of();
        }

        private static ByteBuffer utf8(String text) {
            return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    private <T> DebeziumEngine<ChangeEvent<T, T>> engine(
            Class<? extends SerializationFormat<T>> form, Properties settings) {
        return DebeziumEngine.create(form)
                .using(settings)
                .notifying(
                        (events, committer) -> {
                            for (ChangeEvent<T, T> event : events) {
                                take(event);
                                committer.markProcessed(event);
                            }
                            committer.markBatchFinished();
                        })
                .using(
                        (success, message, error) -> {
                            failure.set(error == null ? new IllegalStateException(message) : error);
                            ended.countDown();
                        })
                .build();
    }

    private void take(ChangeEvent<?, ?> event) {
        if (event.destination().equals(lastTopic)) {
            ended.countDown();
        } else if (event.value() != null) {
            changes++;
        }
    }

    private static Properties settings(String port, String user, String password) {
        Properties settings = new Properties();
        settings.put("name", NAME);
        settings.put("topic.prefix", NAME);
        settings.put("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        settings.put("offset.storage", StartOfJournal.class.getName());
        settings.put("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        // Columns are read from the server, rows only from the journal.
        settings.put("snapshot.mode", "recovery");
        settings.put("snapshot.locking.mode", "none");
        settings.put("database.hostname", "127.0.0.1");
        settings.put("database.port", port);
        settings.put("database.user", user);
        settings.put("database.password", password);
        settings.put("database.ssl.mode", "disabled");
        settings.put("database.server.id", "77001");
        settings.put("driver.allowPublicKeyRetrieval", "true");
        settings.put("tombstones.on.delete", "false");
        settings.put("include.schema.changes", "false");
        settings.put("converter.schemas.enable", "false");
        return settings;
    }

    public static void main(String[] arguments) throws InterruptedException {
        journal = arguments[4];
        Peer peer = new Peer(arguments[5]);
        Properties settings = settings(arguments[1], arguments[2], arguments[3]);
        Thread engine =
                new Thread(
                        arguments[0].equals("json")
                                ? peer.engine(Json.class, settings)
                                : peer.engine(Connect.class, settings));
        engine.setDaemon(true);
        engine.start();
        peer.ended.await();
        if (peer.failure.get() != null) {
            peer.failure.get().printStackTrace();
            System.exit(1);
        }
        System.out.printf(Locale.ROOT, "{\"changes\": %d}%n", peer.changes);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
