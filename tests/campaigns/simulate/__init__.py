"""Whole histories of a pipeline from one seed: threads' order, crashes, faults and time."""
