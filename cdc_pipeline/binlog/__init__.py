"""Bytes in, values out: framing of binlog events and columnar decoding of rows. No I/O, but in `receiving`."""
