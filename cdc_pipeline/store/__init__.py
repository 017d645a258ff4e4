"""The event store between reader and drain: put, get, ack, roll back and release event slices."""
