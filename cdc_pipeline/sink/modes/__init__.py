"""What each mode makes of changes: staged columns and statements."""
