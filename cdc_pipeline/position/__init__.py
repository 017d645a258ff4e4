"""Positions, GTID sets and cursors: where a capture starts, how far it is, what it has acked."""
