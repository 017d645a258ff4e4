"""An object store that fails, lies and comes late at each request of a run, and writers that are
stopped for longer than their lease."""
