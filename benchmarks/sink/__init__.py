"""What merging costs, beside a plain MERGE."""
