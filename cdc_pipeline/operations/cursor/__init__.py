"""See, move and rebuild the cursor of a source."""
