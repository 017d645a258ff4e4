"""Group events into transactions."""
