"""A cluster, an object store and Dagster's database as processes of this machine, really run."""
