"""Show journals to people: the binlog inspector."""
