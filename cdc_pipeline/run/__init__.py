"""One bounded run: where it starts, what it reads, means, stages, merges and publishes."""
