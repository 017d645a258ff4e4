"""Rules of targets over changes and DDL of the columns that they name."""
