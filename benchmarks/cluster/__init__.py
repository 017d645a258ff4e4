"""Captures on a Spark cluster: what executors take off the driver."""
