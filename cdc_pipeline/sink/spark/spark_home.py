"""Find the Spark whose JVM is started: SPARK_HOME, else the one in the pyspark package.

Rules:
- A SPARK_HOME that holds another version than pyspark's is an error, not a reason to look
  elsewhere: it was set on purpose, and Python and JVM must speak the same protocol.
- The version is in the name of Spark's core jar, so nothing is started to find out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import RuntimeSetupError

_CORE_JAR: Final = re.compile(r"spark-core_[\d.]+-(\d+\.\d+)[\w.-]*\.jar")


def find_spark_home() -> Path:
    """Raises RuntimeSetupError: SPARK_HOME is set, and holds no Spark of pyspark's version."""
    import pyspark

    own = Path(pyspark.__file__).parent
    named = os.environ.get("SPARK_HOME")
    if not named or Path(named).resolve() == own.resolve():
        return own
    wanted = ".".join(pyspark.__version__.split(".")[:2])
    found = _version(Path(named))
    if found != wanted:
        raise RuntimeSetupError(
            "SPARK_HOME holds another Spark than this Python's pyspark",
            setting="SPARK_HOME",
            expected=f"Spark {wanted}, as pyspark {pyspark.__version__}",
            got=f"{named} ({'no Spark in it' if found is None else f'Spark {found}'})",
            next_step="unset SPARK_HOME to run pyspark's own Spark, or point it to another of its "
            "version",
        )
    return Path(named)


def _version(home: Path) -> str | None:
    """The minor version, such as 4.2."""
    for jar in home.glob("jars/spark-core_*.jar"):
        match = _CORE_JAR.fullmatch(jar.name)
        if match is not None:
            return match[1]
    return None
