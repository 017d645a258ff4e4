"""Plan a run: where it starts and ends, which tables it follows, what needs a snapshot."""
