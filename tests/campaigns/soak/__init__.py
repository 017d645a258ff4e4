"""Hours of work on both servers at once: what must be equal at the end, and what must not grow."""
