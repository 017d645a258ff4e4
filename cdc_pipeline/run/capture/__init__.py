"""A bounded capture run: read, drain in batches, commit."""
