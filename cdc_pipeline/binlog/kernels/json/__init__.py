"""JSON documents and their differences."""
