"""Quote, escape and clean text from outside, so that no other language interprets it."""
