"""The Dagster door: definitions, the capture asset and the cursor as a materialization.

Rules:
- Loading definitions reads YAML files and one small JSON file of each lake. It opens no database,
  starts no JVM and imports neither pyspark nor numba: the asset's body imports the capture.
- Table events are logged after a batch's cut, and the cursor's event last (K2: publication order).
  So an event that Dagster shows is true even if the step fails right after it.
- Nothing is logged twice: a retry resumes at the cursor, so it publishes only new batches.
"""
