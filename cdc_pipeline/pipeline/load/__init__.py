"""First loads and loads again of tables that a capture follows."""
