"""A server: its connection, its log as a replica reads it, its catalog."""
