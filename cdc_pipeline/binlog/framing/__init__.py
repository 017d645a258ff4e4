"""Bytes into events."""
