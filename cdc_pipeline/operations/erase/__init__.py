"""Erase the rows of keys, wherever the lake holds them, and prove it."""
