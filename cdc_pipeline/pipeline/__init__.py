"""Join the stages of a capture; the only place that knows the whole way."""
