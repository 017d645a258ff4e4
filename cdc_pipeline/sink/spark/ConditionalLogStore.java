package cdcpipeline.delta;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log in S3, for drivers that do not know of each other.
 *
 * <p>Delta's own log store asks whether a commit exists, and then puts it over whatever has come
 * into its place meanwhile. This one puts it with If-None-Match, so that the store refuses the
 * second of two commits of one version (K16).
 *
 * <p>If a put fails, what lies there decides: a commit has an id of its own, so equal content is
 * this very put, whose answer was lost.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    @Override
    public void write(
            Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite) {
            super.write(path, actions, true, configuration);
            return;
        }
        FileSystem files = path.getFileSystem(configuration);
        byte[] content = contentOf(actions);
        FSDataOutputStreamBuilder<?, ?> file = files.createFile(path);
        file.create().overwrite(false).recursive();
        file.must(CONDITIONAL, true);
        try (OutputStream stream = file.build()) {
            stream.write(content);
        } catch (IOException error) {
            byte[] there = contentAt(files, path);
            if (there == null) {
                throw error;
            }
            if (!Arrays.equals(there, content)) {
                throw new FileAlreadyExistsException(path.toString());
            }
        }
    }

    private static byte[] contentOf(Iterator<String> actions) throws IOException {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            content.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return content.toByteArray();
    }

    private static byte[] contentAt(FileSystem files, Path path) throws IOException {
        try (InputStream stream = files.open(path)) {
            return stream.readAllBytes();
        } catch (FileNotFoundException error) {
            return null;
        }
    }
}
