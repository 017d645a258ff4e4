"""Decode rows events to columns."""
