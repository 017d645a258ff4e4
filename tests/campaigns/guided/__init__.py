"""Fuzzing of single parsers, guided by the code that an input reaches."""
