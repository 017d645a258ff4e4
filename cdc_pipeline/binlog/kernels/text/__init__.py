"""Compiled conversion of values to text."""
