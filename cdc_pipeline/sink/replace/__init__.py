"""Replacing the content of a table as a whole."""
