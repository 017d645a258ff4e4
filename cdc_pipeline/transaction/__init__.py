"""Transactions and their table maps: what belongs together leaves together (SPEC T, C)."""
