"""What this deployment runs: one YAML file per source."""
