"""Table maps: wire types, charsets, names."""
