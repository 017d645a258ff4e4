"""Where a capture starts, where it stands, and what it has acked: positions, GTID sets and cursors."""
