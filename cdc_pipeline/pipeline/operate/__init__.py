"""What a person does to a source: status, cursor, quarantine."""
