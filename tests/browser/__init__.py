"""A real browser looks at Dagster's pages of the shipped project (``make dev``)."""
