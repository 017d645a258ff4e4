"""What every run of a crash test imports and loads, done once in the process that they are forked
from.

Imported by multiprocessing's fork server, which starts no thread and no JVM; see `crash_children`.
"""

from __future__ import annotations

import pyspark.sql  # noqa: F401 - a session is started by the run itself

import tests.support.crash_child  # noqa: F401
from tests.support.shown_journals import changes
from tools.record_golden import GOLDEN

# the kernels, from numba's cache
list(changes([GOLDEN / "mysql-common.000001"]))
