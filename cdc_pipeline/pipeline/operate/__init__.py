"""Operations of a person on a source: status, cursor, quarantine."""
