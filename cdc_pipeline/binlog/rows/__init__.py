"""Rows events into columns."""
