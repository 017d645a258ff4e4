"""Remove Hadoop's folder markers: empty objects whose names end with a slash.

Delta creates one for a new table's log, and the connector one when the last file of a folder is
removed. They hold nothing and nothing reads them, but a tree is gone only without them.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from cdc_pipeline.lake.storage.object_path import ObjectPath


def remove_markers(folder: ObjectPath) -> None:
    """Remove the markers of a tree without files, with Spark's own connector.

    A process that made such objects has it running. Without it, or if it fails, they stay, which
    loses nothing.
    """
    pyspark: Any = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return
    with suppress(Exception):
        path = context._jvm.org.apache.hadoop.fs.Path(str(folder))
        path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)
