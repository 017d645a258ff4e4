"""What each table costs when there are many."""
