"""The event store between reader and drain: put, get, ack, rollback and release of event slices (SPEC S, K9)."""
