"""What a long history costs: runs, commands and Dagster's events, the 10,000th beside the 100th."""
