"""Apply a recorded batch to the tables, each step exactly once."""
