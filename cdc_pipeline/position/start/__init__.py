"""Where a run starts (SPEC P2 to P8)."""
