"""Transactions and their table maps (SPEC T, C)."""
