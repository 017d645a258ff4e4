"""Use a Spark session that the user's program has started (`sink.spark.session`).

Rules:
- The function is imported and called when Spark is first needed; a run that has nothing to write
  never calls it.
- The session is the user's: it is neither changed nor stopped, unless its Connect server has
  dropped it. A run works in sessions beside it, which share its Spark context and have settings of
  their own (K20).
- What those cannot set, the session must have: Delta of the version that this package was built
  with, and its SQL extension and catalog. What is missing is reported before anything is written.
- It is classic or of Spark Connect, so all questions are SQL or settings; what asks the JVM of a
  classic one asks `is_remote` first.

Whoever may write the configuration decides which code runs, by `session` as by `settings` (jars)
and by ``jobs/definitions.py``; so this adds no authority.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.sink.delta.failures import DROPPED
from cdc_pipeline.sink.spark.jars import DELTA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "sink.spark.session"
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_NEXT_STEP: Final = "start Spark with what is expected; or leave sink.spark.session out"


def users_session(path: str) -> SparkSession:
    """RuntimeSetupError: no such function, it failed, or its session lacks something."""
    try:
        function = _function(path)
        _stop_dropped()
        users = function()
    except RuntimeSetupError:
        raise
    except Exception as error:
        raise RuntimeSetupError(
            f"{path} did not return a Spark session",
            setting=SETTING,
            got=type(error).__name__,  # its text is another program's, and may hold anything (K26)
            next_step=f"call {path.replace(':', '.')} in a Python of this environment and fix it",
        ) from None
    _check(users, path)
    session: SparkSession = users
    return session


def _stop_dropped() -> None:
    """Else `getOrCreate` returns it again, or fails to apply the builder's settings to it."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None:
        sessions = connect.SparkSession
        for session in (sessions.getActiveSession(), sessions._get_default_session()):
            if session is not None and is_dropped(session):
                # Its server has released it; pyspark 4.2 looks for this in a clone, and fails.
                session.release_session_on_close = False
                session.stop()


def _function(path: str) -> Callable[[], Any]:
    module, _, name = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RuntimeSetupError(
            f"{path} cannot be imported",
            setting=SETTING,
            expected="module:function, of a module that this Python can import",
            got=str(error),
            next_step=f"install the package of {module}, or put its folder on PYTHONPATH",
        ) from None
    if not callable(factory):
        raise RuntimeSetupError(
            f"{path} is not a function",
            setting=SETTING,
            expected="a function without parameters that returns a SparkSession",
            got=type(factory).__name__,
            next_step="name the function that makes or returns the session",
        )
    function: Callable[[], Any] = factory
    return function


def _check(session: Any, path: str) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    if not isinstance(session, SparkSession) and not is_remote(session):
        raise _lacks(
            path, "it returned no SparkSession", expected="a SparkSession", got=type(session)
        )
    if _minor(session.version) != _minor(pyspark.__version__):
        raise _lacks(
            path,
            "its Spark has another version than this Python's pyspark",
            expected=f"Spark {_minor(pyspark.__version__)}",
            got=session.version,
        )
    for name, wanted in (
        ("spark.sql.extensions", _EXTENSION),
        ("spark.sql.catalog.spark_catalog", _CATALOG),
    ):
        value = session.conf.get(name, None) or ""
        if wanted not in value.split(","):
            raise _lacks(path, f"its session lacks {name}", expected=wanted, got=value or "not set")


def check_delta(session: Any, path: str) -> None:
    delta = delta_version(session)
    if _minor(delta) != _minor(DELTA_VERSION):
        raise _lacks(
            path,
            "its session has another Delta than the one that this package commits with",
            expected=f"Delta {_minor(DELTA_VERSION)} of io.delta",
            got=delta or "no Delta in its jars",
        )


def is_dropped(session: Any) -> bool:
    """Whether it is stopped, or its server has dropped it, as it does after an idle hour."""
    if not is_remote(session):
        return False
    if session.is_stopped:
        return True
    try:
        session.conf.get("spark.sql.session.timeZone")
    except Exception as error:
        return DROPPED in str(error)
    return False


def is_remote(session: Any) -> bool:
    """Whether it is of Spark Connect: without a JVM in this process."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def delta_version(session: Any) -> str:
    """Of the session's Spark; "" if it has no Delta of `io.delta`."""
    from pyspark.errors import AnalysisException

    try:
        return str(session.sql("SELECT java_method('io.delta.package', 'VERSION')").first()[0])
    except AnalysisException:
        return ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _lacks(path: str, what: str, *, expected: str, got: object) -> RuntimeSetupError:
    return RuntimeSetupError(
        f"{path} cannot be used: {what}",
        setting=SETTING,
        expected=expected,
        got=got,
        next_step=_NEXT_STEP,
    )
