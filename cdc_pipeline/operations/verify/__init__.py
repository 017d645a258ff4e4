"""Compare tables with their source and repair them."""
