"""A batch under way: its rows in Parquet files, and its record."""
