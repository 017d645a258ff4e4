"""First loads and reloads of captured tables."""
