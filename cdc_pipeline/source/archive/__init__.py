"""Journals in a folder."""
