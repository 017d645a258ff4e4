"""What a DDL statement means for a target."""
