"""Spark as the tests of the whole way have it: a merge of a few rows at half the cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cdc_pipeline.sink.spark import session
from tests.support.captures import SPARK

__all__ = ["LONG_RUN", "SPARK"]

_LOG = (Path(session.__file__).parent / "log4j2.properties").as_uri()
# One collector's thread and a roomy heap: with several in a narrow one, a session of a thousand
# small merges spends a tenth of its time on collecting. Java's second compiler does not earn back
# what it costs here either.
LONG_RUN: dict[str, Any] = {
    **SPARK,
    "driver_memory": "2g",
    "settings": {
        **SPARK["settings"],  # type: ignore[dict-item]
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m "
            f"-Dlog4j2.configurationFile={_LOG}"
        ),
    },
}
