"""What the lake remembers of a source, without Delta and without a JVM: records, cuts, cursors, suspensions."""
