"""From stored events to decoded rows and decided statements."""
