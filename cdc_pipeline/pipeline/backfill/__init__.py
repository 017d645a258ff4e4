"""Journals of the past into a lake: in parallel, by range, over a gap."""
