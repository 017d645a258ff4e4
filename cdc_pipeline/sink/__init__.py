"""The Delta side: staging, records, merges and cuts."""
