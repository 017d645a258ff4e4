"""Whole syncs, from a journal to committed Delta tables, beside Debezium's embedded engine."""
