"""Rules that are taken out, one at a time, to see that a test fails: `rules.py` is the list,
`make campaign NAME=mutations` runs it. Not part of the suite, but for
`tests/house/test_mutations.py`, which holds the list and its page true."""
