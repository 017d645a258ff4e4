"""Bytes in, values out: frame binlog events and decode rows by column.
Only `receiving` does I/O.
"""
