"""Assets and their checks: captured tables, snapshots, cursors."""
