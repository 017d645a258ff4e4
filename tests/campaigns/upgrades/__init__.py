"""The newest state in the hands of an older version."""
