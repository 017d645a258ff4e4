"""The log store by which Spark commits to Delta tables in S3: `ConditionalLogStore.java`, compiled
by ``tools/log_store.py`` into the jar beside it.

Delta 4.4 ships none that uses S3's conditional puts: with `S3SingleDriverLogStore` the later of two
drivers that commit one version takes the place of the earlier.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

JAR: Final = Path(__file__).with_name("conditional_log_store.jar")
SETTINGS: Final = {"spark.delta.logStore.s3a.impl": "cdcpipeline.delta.ConditionalLogStore"}
