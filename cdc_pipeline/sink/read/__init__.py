"""Tables as of a cut."""
