import com.github.shyiko.mysql.binlog.BinaryLogFileReader;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.TableMapEventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.ColumnType;
import com.github.shyiko.mysql.binlog.event.deserialization.json.JsonBinary;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** Decodes journals with mysql-binlog-connector-java and prints what it found in the last one, and the CPU time of that.
 *
 * Arguments: "bytes" or "text", what to make of JSON; journals.
 */
public final class Peer {
    private final boolean withJsonText;
    private final Map<Long, byte[]> columnTypes = new HashMap<>();
    private long changes;
    private long images;
    private long cells;
    private long nulls;
    private long jsonCharacters;

    private Peer(boolean withJsonText) {
        this.withJsonText = withJsonText;
    }

    private void decode(String journal) throws IOException {
        try (BinaryLogFileReader reader =
                new BinaryLogFileReader(new BufferedInputStream(new FileInputStream(journal), 1 << 20))) {
            for (Event event = reader.readEvent(); event != null; event = reader.readEvent()) {
                EventData data = event.getData();
                if (data instanceof TableMapEventData) {
                    TableMapEventData table = (TableMapEventData) data;
                    columnTypes.put(table.getTableId(), table.getColumnTypes());
                } else if (data instanceof WriteRowsEventData) {
                    WriteRowsEventData rows = (WriteRowsEventData) data;
                    changes += rows.getRows().size();
                    for (Serializable[] row : rows.getRows()) {
                        count(row, rows.getTableId());
                    }
                } else if (data instanceof UpdateRowsEventData) {
                    UpdateRowsEventData rows = (UpdateRowsEventData) data;
                    changes += rows.getRows().size();
                    for (Map.Entry<Serializable[], Serializable[]> row : rows.getRows()) {
                        count(row.getKey(), rows.getTableId());
                        count(row.getValue(), rows.getTableId());
                    }
                } else if (data instanceof DeleteRowsEventData) {
                    DeleteRowsEventData rows = (DeleteRowsEventData) data;
                    changes += rows.getRows().size();
                    for (Serializable[] row : rows.getRows()) {
                        count(row, rows.getTableId());
                    }
                }
            }
        }
    }

    private void count(Serializable[] row, long tableId) throws IOException {
        byte[] types = columnTypes.get(tableId);
        images++;
        cells += row.length;
        for (int column = 0; column < row.length; column++) {
            if (row[column] == null) {
                nulls++;
            } else if (withJsonText && (types[column] & 0xFF) == ColumnType.JSON.getCode()) {
                jsonCharacters += JsonBinary.parseAsString((byte[]) row[column]).length();
            }
        }
    }

    /** The process's CPU clock, all threads: garbage collector and compiler are in it. */
    private static double cpuSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    public static void main(String[] arguments) throws IOException {
        Peer last = null;
        double seconds = 0;
        for (int number = 1; number < arguments.length; number++) {
            last = new Peer(arguments[0].equals("text"));
            double begin = cpuSeconds();
            last.decode(arguments[number]);
            seconds = cpuSeconds() - begin;
        }
        System.out.printf(
                Locale.ROOT,
                "{\"changes\": %d, \"images\": %d, \"cells\": %d, \"nulls\": %d, \"json_characters\": %d, \"cpu_s\": %.6f}%n",
                last.changes, last.images, last.cells, last.nulls, last.jsonCharacters, seconds);
    }
}
