"""Names in any letter case, on servers that fold them and on servers that do not (K30)."""
