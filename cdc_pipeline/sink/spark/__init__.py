"""The Spark session: its jars, settings and limits."""
