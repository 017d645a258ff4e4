"""Parts of an archived log that Spark's executors decode and stage, each by itself."""
