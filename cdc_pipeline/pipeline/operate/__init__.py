"""Operations of a person on a source: tables of its server, status, cursor, quarantine."""
