"""One log, cut at every place: always the same rows."""
