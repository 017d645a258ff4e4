"""The ring store on disk."""
