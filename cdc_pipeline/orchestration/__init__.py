"""The Dagster door: definitions, the capture asset and the cursor as a materialization."""
