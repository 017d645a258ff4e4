"""Events into transactions."""
