"""Tables compared with their source, and put right."""
