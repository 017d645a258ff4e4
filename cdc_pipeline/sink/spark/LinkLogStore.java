package cdcpipeline.delta;

import io.delta.storage.HDFSLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log in a folder, for processes that do not know of each other.
 *
 * <p>Delta's own log store asks whether a commit exists, and then renames its file over whatever
 * has come into its place meanwhile: it only knows of writers in its own JVM. A hard link fails if
 * its name exists, as do those by which commits without a JVM are made (K16).
 */
public class LinkLogStore extends HDFSLogStore {
    public LinkLogStore(Configuration configuration) {
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
        java.nio.file.Path commit = java.nio.file.Path.of(path.toUri().getPath());
        String name = "." + path.getName() + "." + UUID.randomUUID() + ".tmp";
        java.nio.file.Path temporary = commit.resolveSibling(name);
        try {
            Iterable<String> lines = () -> actions;
            Files.write(temporary, lines, StandardCharsets.UTF_8);
            Files.createLink(commit, temporary);
        } finally {
            Files.deleteIfExists(temporary);
        }
    }
}
