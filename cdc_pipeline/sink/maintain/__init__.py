"""Upkeep of a lake: compaction, vacuum, copies of cuts."""
