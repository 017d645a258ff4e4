"""Split bytes into events."""
