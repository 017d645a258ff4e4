"""Python's cyclic garbage collector, run rarely.

A run's large objects (chunks of the log, Arrow tables, staged rows) are in no cycle, which
`tests/run/capture/test_collector.py` proves. The collector frees what libraries leave in cycles,
some megabytes in a long run. With its defaults it scans the hundreds of thousands of objects of
imported modules again and again, for a tenth to a fifth of a run's CPU time.

What Spark has made is another matter: small here, and large in the JVM. Each of py4j's objects is
in a cycle with its own methods, and keeps its counterpart in the JVM, with all plans and rows that
that one refers to. So new sessions of Spark free earlier ones (K25).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# So many new objects since the last collection begin one (Python: 700). All modules of a run are
# fewer objects than the first.
_OBJECTS_OF_START: Final = 500_000
_OBJECTS_OF_RUN: Final = 100_000
# So many sessions of Spark, with some 13 MiB each, wait for one look at all objects of the run.
_SESSIONS: Final = 8

_sessions = 0  # that this process has made
_is_kept = False  # a block of `modules_kept` is open: to count what is frozen takes long


def collect_rarely() -> None:
    """Let the collector run once for each 500,000 new objects, for the rest of the process."""
    gc.set_threshold(_OBJECTS_OF_START, *gc.get_threshold()[1:])


def leave_to_exit() -> None:
    """Let the process end without a last search for garbage."""
    gc.freeze()


def free_spark_objects() -> None:
    """Once in `_SESSIONS` calls, each before a new session, free what the JVM's names keep."""
    global _sessions
    _sessions += 1
    if _sessions % _SESSIONS == 0:
        gc.collect()


@contextmanager
def modules_kept() -> Iterator[None]:
    """Keep the collector away from all that exists already, and let it run once for each 100,000
    new objects, until the end of the block."""
    global _is_kept
    if _is_kept or gc.get_freeze_count():  # an outer block's, or the caller's own
        yield
        return
    if _sessions:
        gc.collect()  # what an earlier run of this process has left would be kept with the modules
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_OF_RUN, *before[1:])
    gc.freeze()
    _is_kept = True
    try:
        yield
    finally:
        _is_kept = False
        gc.unfreeze()
        gc.set_threshold(*before)
