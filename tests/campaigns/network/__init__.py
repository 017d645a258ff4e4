"""Connections that break, stall and trickle at each byte of a conversation with a server."""
