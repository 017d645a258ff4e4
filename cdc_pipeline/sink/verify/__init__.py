"""The sink's half of a comparison with the source."""
