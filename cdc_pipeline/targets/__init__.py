"""Decide which table goes where, and in what shape: routes, keys, following, masks."""
