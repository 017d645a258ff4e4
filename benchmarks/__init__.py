"""Measurements; each is a module to be run, and prints its figures beside their targets."""
