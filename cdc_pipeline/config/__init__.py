"""The configuration of a source: sections of the YAML file, each with what it permits."""
