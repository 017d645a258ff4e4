"""One log under every setting that may not change rows, two at a time: always the same rows."""
