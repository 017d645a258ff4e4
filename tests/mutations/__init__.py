"""Rules that are taken out, one at a time, to see that a test fails: the table of `README.md`,
which `make campaign NAME=mutations` plays. `tests/house/test_mutations.py` holds that each place
is there."""
