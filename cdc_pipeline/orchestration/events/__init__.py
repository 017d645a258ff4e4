"""What a run leaves in Dagster: materializations, observations, their metadata."""
