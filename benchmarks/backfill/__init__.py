"""Old journals replayed: in parallel beside one after the other."""
