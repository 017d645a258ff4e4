"""Snapshots of captured tables."""
