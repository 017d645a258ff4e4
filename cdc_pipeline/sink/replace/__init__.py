"""The contents of a table replaced as a whole."""
