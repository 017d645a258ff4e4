"""Parsers of all events except rows events."""
