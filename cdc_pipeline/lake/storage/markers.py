"""What Hadoop leaves of folders in an object store: empty objects whose names end with a slash.

Delta makes one for a new table's log, and the connector one where the last file of a folder goes. They hold nothing and
nobody looks at them, but a tree is gone only without them.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from cdc_pipeline.lake.storage.object_path import ObjectPath


def remove_markers(folder: ObjectPath) -> None:
    """Remove what is left of a tree whose files are gone, with Spark's own connector: whoever made such objects in this
    process has it running. Without it, or where it fails, they stay: that loses nothing."""
    pyspark: Any = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return
    with suppress(Exception):
        path = context._jvm.org.apache.hadoop.fs.Path(str(folder))
        path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)
