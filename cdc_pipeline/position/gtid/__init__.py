"""GTID sets of both servers."""
