"""DDL statements, read."""
