"""A server that lies: recorded conversations, changed and replayed to a pipeline."""
