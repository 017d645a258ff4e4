"""Each table's schema at each place of the log."""
