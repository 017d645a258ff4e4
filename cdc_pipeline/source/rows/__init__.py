"""Rows of a table as SELECT gives them, in chunks by key."""
