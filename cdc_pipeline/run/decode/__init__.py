"""Turn stored events into decoded rows and decided statements."""
