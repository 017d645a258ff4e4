"""A recorded batch into the tables, each step exactly once."""
