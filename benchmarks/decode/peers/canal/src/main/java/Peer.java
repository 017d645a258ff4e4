import com.sun.management.OperatingSystemMXBean;
import com.taobao.tddl.dbsync.binlog.LogBuffer;
import com.taobao.tddl.dbsync.binlog.LogContext;
import com.taobao.tddl.dbsync.binlog.LogDecoder;
import com.taobao.tddl.dbsync.binlog.LogEvent;
import com.taobao.tddl.dbsync.binlog.LogPosition;
import com.taobao.tddl.dbsync.binlog.event.RowsLogBuffer;
import com.taobao.tddl.dbsync.binlog.event.RowsLogEvent;
import com.taobao.tddl.dbsync.binlog.event.TableMapLogEvent.ColumnInfo;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.BitSet;
import java.util.Locale;

/** Decodes journals with Canal's LogDecoder and prints what it found in the last one, and the CPU time of that. */
public final class Peer {
    private static final int BLOCK_BYTES = 1 << 20;
    private static final int MAGIC_BYTES = 4;
    private static final int HEADER_BYTES = 19;
    private static final int LENGTH_AT = 9;
    private static final int BINARY_CHARSET = 63;

    private long changes;
    private long images;
    private long cells;
    private long nulls;
    private Serializable[] row;

    /** Whole events only are given to the decoder: it reads the checksum of one that is cut as well. */
    private void decode(String journal) throws IOException {
        LogDecoder decoder = new LogDecoder(LogEvent.UNKNOWN_EVENT, LogEvent.ENUM_END_EVENT);
        LogContext context = new LogContext();
        context.setLogPosition(new LogPosition(journal));
        byte[] block = new byte[BLOCK_BYTES];
        try (FileInputStream file = new FileInputStream(journal)) {
            file.skipNBytes(MAGIC_BYTES);
            int filled = 0;
            for (int read = file.read(block); read > 0; read = file.read(block, filled, block.length - filled)) {
                filled += read;
                int whole = wholeEvents(block, filled);
                LogBuffer events = new LogBuffer(block, 0, whole);
                for (LogEvent event = decoder.decode(events, context);
                        event != null;
                        event = decoder.decode(events, context)) {
                    if (event instanceof RowsLogEvent) {
                        count((RowsLogEvent) event);
                    }
                }
                filled -= whole;
                System.arraycopy(block, whole, block, 0, filled);
                if (filled == block.length) {
                    throw new IOException("an event of more than " + BLOCK_BYTES + " bytes");
                }
            }
        }
    }

    private static int wholeEvents(byte[] block, int filled) {
        ByteBuffer bytes = ByteBuffer.wrap(block).order(ByteOrder.LITTLE_ENDIAN);
        int whole = 0;
        while (whole + HEADER_BYTES <= filled && whole + bytes.getInt(whole + LENGTH_AT) <= filled) {
            whole += bytes.getInt(whole + LENGTH_AT);
        }
        return whole;
    }

    private void count(RowsLogEvent event) {
        RowsLogBuffer rows = event.getRowsBuf(StandardCharsets.UTF_8);
        ColumnInfo[] columns = event.getTable().getColumnInfo();
        boolean isUpdate = event.getHeader().getType() == LogEvent.UPDATE_ROWS_EVENT;
        while (rows.nextOneRow(event.getColumns())) {
            changes++;
            count(rows, columns, event.getColumns());
            if (isUpdate) {
                if (!rows.nextOneRow(event.getChangeColumns(), true)) {
                    throw new IllegalStateException("an update without an after image");
                }
                count(rows, columns, event.getChangeColumns());
            }
        }
    }

    private void count(RowsLogBuffer rows, ColumnInfo[] columns, BitSet present) {
        images++;
        row = new Serializable[columns.length];
        for (int number = 0; number < columns.length; number++) {
            if (!present.get(number)) {
                continue;
            }
            ColumnInfo column = columns[number];
            rows.nextValue(column.name, number, column.type, column.meta, column.charset == BINARY_CHARSET);
            row[number] = rows.getValue();
            cells++;
            if (row[number] == null) {
                nulls++;
            }
        }
    }

    /** The process's CPU clock, all threads: garbage collector and compiler are in it. */
    private static double cpuSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    public static void main(String[] journals) throws IOException {
        Peer last = null;
        double seconds = 0;
        for (String journal : journals) {
            last = new Peer();
            double begin = cpuSeconds();
            last.decode(journal);
            seconds = cpuSeconds() - begin;
        }
        System.out.printf(
                Locale.ROOT,
                "{\"changes\": %d, \"images\": %d, \"cells\": %d, \"nulls\": %d, \"cpu_s\": %.6f}%n",
                last.changes, last.images, last.cells, last.nulls, seconds);
    }
}
