"""What happens to a server between two runs, and what the next run must do."""
