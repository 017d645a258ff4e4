"""Clocks of server and pipeline that jump: leap days, time zones, years, and backwards."""
