"""Types, DDL and schema decisions: what a source table means on the Delta side."""
