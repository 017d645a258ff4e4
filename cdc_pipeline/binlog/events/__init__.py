"""Events that are not rows."""
