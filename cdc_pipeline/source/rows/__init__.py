"""Reading rows of a table with SELECT, in chunks by key."""
