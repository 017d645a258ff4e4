"""State of a source in the lake, without Delta and without a JVM: records, cuts, suspensions."""
