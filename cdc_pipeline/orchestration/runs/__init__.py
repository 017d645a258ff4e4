"""Runs that the command line starts in Dagster, and asks Dagster about."""
