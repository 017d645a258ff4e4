"""Adapters that deliver chunks of binlog events: a live server, or a directory of archived
journals."""
