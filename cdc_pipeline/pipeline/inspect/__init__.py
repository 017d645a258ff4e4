"""Journals as people read them: the binlog inspector."""
