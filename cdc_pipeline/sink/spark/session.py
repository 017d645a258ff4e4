"""The Spark session that merges: started lazily, once, with what Delta needs.

Rules:
- Only merging and reading rows start it; a run with nothing to write never gets here.
- The settings of `SparkConfig` override the project's own, except for `SQL_SETTINGS`: those hold in
  every session, and every session besides the first one is made by `new_session` (K20).
- A session that already runs in this process, such as a notebook's, stays as it is: ours is created
  beside it. So does one that the user's own function returns (`own_session`), whose settings hold
  beside `SQL_SETTINGS`. Only Hadoop's settings for the lake's object store join its Spark's, and
  not those of a server of Spark Connect, which has its own.
- Settings that may be secret are never in the JVM's arguments: they are passed once it runs (K26:
  other users can list arguments).
- The number of shuffle partitions follows from the cores: Spark's default of 200 costs more than a
  batch's work.
- A JVM that died is replaced at the next call, so that a retry in the same process does not use the
  dead one. So is one that an earlier lake of this process left without the classes of this lake's
  object store; a Spark that still runs without them is refused, because its class path is fixed.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from cdc_pipeline import pandas_import
from cdc_pipeline.collector import free_spark_objects
from cdc_pipeline.config.pipeline_config import SinkConfig, SparkConfig
from cdc_pipeline.config.spark_config import SQL_SETTINGS, is_secret
from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.lake.paths import STATE_FOLDER
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import opened
from cdc_pipeline.lake.storage.storage_settings import SparkStorage, spark_storage
from cdc_pipeline.sink.spark import class_archive
from cdc_pipeline.sink.spark.cluster import check_executors, check_master
from cdc_pipeline.sink.spark.jars import JAR_SETS, jar_paths
from cdc_pipeline.sink.spark.java import find_java_home, find_spark_home
from cdc_pipeline.sink.spark.own_session import check_delta, is_dropped, is_remote, users_session
from cdc_pipeline.text.hide import hide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The log stores by which Spark commits to folders and to S3, compiled by `tools/log_store.py`. With
# those of Delta 4.4 the later of two processes that commit one version may replace the earlier.
LOG_STORE_JAR: Final = Path(__file__).with_name("log_stores.jar")
_LOG_STORES: Final = {
    "spark.delta.logStore.file.impl": "cdcpipeline.delta.LinkLogStore",
    "spark.delta.logStore.s3a.impl": "cdcpipeline.delta.ConditionalLogStore",
}


_log = logging.getLogger(__name__)

CODE_CACHE_MB: Final = 512  # address space; memory is taken as code is compiled
# Finished queries, jobs and tasks that Spark keeps for a page that is switched off. A MERGE's plan
# alone is hundreds of kilobytes of text, and 1,000 of them would be kept.
_REMEMBERED: Final = {
    "spark.sql.ui.retainedExecutions": "2",
    "spark.sql.maxPlanStringLength": "4096",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.ui.dagGraph.retainedRootRDDs": "10",
}
_HADOOP: Final = "spark.hadoop."
_LAST_JARS: Final = "SPARK_DIST_CLASSPATH"
_CAUSES_MAX: Final = 20
_CAUSE_CHARACTERS_MAX: Final = 400
_CLASS: Final = re.compile(r"^[\w.$]+(Exception|Error): ")
_NO_CLASS: Final = re.compile(r"ClassNotFound|NoClassDefFound|No FileSystem for scheme")
_URL_PASSWORD: Final = re.compile(r"://[^/\s@]*@")


class SparkProvider:
    """Its session; one that has no executors yet is used with a warning only if `is_patient`."""

    def __init__(
        self, config: SparkConfig, storage: SparkStorage | None = None, *, is_patient: bool = True
    ) -> None:
        self._config = config
        self._storage = storage
        self._is_patient = is_patient
        self._session: Any = None
        self._refusal: RuntimeSetupError | None = None
        self._is_guest = False
        self._guard = threading.Lock()
        self._warehouse: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def from_config(cls, config: SinkConfig, *, is_patient: bool = True) -> SparkProvider:
        lake = opened(config.lake_path)
        storage = spark_storage(lake) if is_object(lake) else None
        return cls(config.spark, storage, is_patient=is_patient)

    @property
    def started(self) -> bool:
        return self._session is not None

    def session(self) -> SparkSession:
        """Raises RuntimeSetupError: no Java, jars or executors, or Spark does not start."""
        with self._guard:
            # Views and settings of a batch are those of its own copy: nothing of this one is lost.
            if _forget_dead_jvm() or (self._session is not None and is_dropped(self._session)):
                self._session = None
            if self._refusal is not None:
                raise self._refusal
            if self._session is None:
                pandas_import.let_in()
                self._session = self._with_executors(self._start())
            session: SparkSession = self._session
            return session

    def _with_executors(self, session: Any) -> Any:
        try:
            check_executors(session, is_patient=self._is_patient)
            if self._config.session is not None:
                check_delta(session, self._config.session)
        except RuntimeSetupError as error:
            self._refusal = error  # each table would wait for them
            if not self._is_guest:
                _end_jvm(session)
            raise
        return session

    def cancel(self) -> None:
        """Their callers may no longer write. May be called from any thread."""
        session = self._session
        with suppress(Exception):  # a JVM that is shutting down has nothing to cancel
            if session is not None and is_remote(session):
                _clones.interrupt()
            elif session is not None:
                session.sparkContext.cancelAllJobs()

    def stop(self) -> None:
        """The JVM ends with the process."""
        with self._guard:
            if self._session is not None:
                if not _forget_dead_jvm() and not self._is_guest:
                    self._session.stop()
                self._session = None
                _clones.release()
            if self._warehouse is not None:
                self._warehouse.cleanup()
                self._warehouse = None

    def _start(self) -> Any:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context: Any = SparkContext
        if self._config.session is not None:
            self._is_guest = True
            users = users_session(self._config.session)
            if is_remote(users):
                _quieten(users)
            else:
                _pass_to_hadoop(users, _hadoop_settings(self._storage))
            _check_store(users, self._storage)
            return new_session(users)
        self._is_guest = context._active_spark_context is not None
        if not self._is_guest:
            os.environ["JAVA_HOME"] = str(find_java_home())
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            os.environ["SPARK_HOME"] = str(find_spark_home())
            check_master(self._config.master)
        self._warehouse = tempfile.TemporaryDirectory(prefix="cdc-pipeline-warehouse-")
        settings = session_settings(
            self._config, warehouse=self._warehouse.name, storage=self._storage
        )
        if not self._is_guest:
            _log.info("starting Spark")
        try:
            if self._is_guest:
                session = _beside(SparkSession.builder.getOrCreate(), settings)
            else:
                last = _stores_jars(self._storage) if self._config.is_local else ()
                session = _first(settings, last)
                if not _has_store(session, self._storage):
                    _end_jvm(session)
                    session = _first(settings, last)
        except Exception as error:
            raise RuntimeSetupError(
                "Spark does not start",
                setting="sink.spark",
                got=_why_not_started(
                    error, hidden=[text for name, text in settings.items() if is_secret(name, text)]
                ),
                next_step="correct what is named here, or JAVA_HOME, then run "
                "`cdc-pipeline doctor`; `python -m cdc_pipeline.sink.spark` downloads "
                "Spark's jars again",
            ) from None
        _check_store(session, self._storage)
        _set_sql(session)
        if not self._is_guest:
            _quieten(session)
        return session


class _Clones:
    """Of Spark Connect, whose server keeps the state of each for an hour unless it is released."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._clients: list[tuple[weakref.ref[Any], Any]] = []
        atexit.register(self.release, is_end=True)

    def add(self, session: Any) -> Any:
        self.release()
        clone = session.cloneSession()
        atexit.unregister(clone.client._on_exit)  # which waits for a server that is gone
        with self._guard:
            self._clients.append((weakref.ref(clone), clone.client))
        return clone

    def interrupt(self) -> None:
        with self._guard:
            clients = [client for _, client in self._clients]
        for client in clients:
            with suppress(Exception):  # a server may have dropped one
                client.interrupt_all()

    def release(self, *, is_end: bool = False) -> None:
        """Those that are not used any more; all at the end of the process."""
        with self._guard:
            unused = [entry for entry in self._clients if is_end or entry[0]() is None]
            self._clients = [entry for entry in self._clients if entry not in unused]
        for _, client in unused:
            client.set_retry_policies([])  # a server that is gone has released it
            with suppress(Exception):
                client.release_session()
            client.close()


_clones = _Clones()


def new_session(session: SparkSession) -> SparkSession:
    """With settings, views and a queue of jobs of its own: a small table never waits for a large
    one. Unused earlier ones are freed from time to time, with their plans.
    """
    free_spark_objects()
    if is_remote(session):
        new: SparkSession = _clones.add(session)
    else:
        thread = threading.current_thread()
        if thread is not threading.main_thread():  # which may be a user's own
            session.sparkContext.setLocalProperty("spark.scheduler.pool", thread.name)
        new = session.newSession()
    _set_sql(new)
    return new


def _set_sql(session: SparkSession) -> None:
    for name, value in SQL_SETTINGS.items():
        session.conf.set(name, value)


def arguments(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if not is_secret(name, value)}


def _stores_jars(storage: SparkStorage | None) -> list[Path]:
    return [*(jar_paths(storage.jar_set) if storage is not None else ()), LOG_STORE_JAR]


def _first(settings: Mapping[str, str], last_jars: Iterable[Path]) -> Any:
    """Start the JVM with the settings that may be in its arguments, then Spark with all. Spark
    appends `last_jars` to the class path, which still fits the archive of classes then.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    before = os.environ.get(_LAST_JARS)
    os.environ[_LAST_JARS] = os.pathsep.join([*([before] if before else []), *map(str, last_jars)])
    try:
        context._ensure_initialized(
            conf=SparkConf(loadDefaults=False).setAll(list(arguments(settings).items()))
        )
    finally:  # a process that this one starts has jars of its own
        os.environ.pop(_LAST_JARS)
        if before is not None:
            os.environ[_LAST_JARS] = before
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _quieten(session: SparkSession) -> None:
    """Failed queries are not printed with the values in them; the error says what is needed."""
    from pyspark.logger import PySparkLogger

    if not is_remote(session):
        session.sparkContext.setLogLevel("ERROR")
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _beside(running: Any, settings: Mapping[str, str]) -> Any:
    """Another session of the Spark that this process runs, with what a session can set."""
    beside = running.newSession()
    module = getattr(getattr(beside._jvm.org.apache.spark.sql.classic, "SparkSession$"), "MODULE$")
    module.applyModifiableSettings(beside._jsparkSession, dict(settings))
    _pass_to_hadoop(beside, settings)
    return beside


def _pass_to_hadoop(session: Any, settings: Mapping[str, str]) -> None:
    """In a Spark that runs they hold in all of its sessions."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in settings.items():
        if name.startswith(_HADOOP):
            hadoop.set(name.removeprefix(_HADOOP), value)


def _hadoop_settings(storage: SparkStorage | None) -> dict[str, str]:
    if storage is None:
        return {}
    secrets = {_HADOOP + name: value for name, value in storage.secrets.items()}
    return {**storage.settings, **secrets}


def root_cause(error: BaseException, *, hidden: Iterable[str] = ()) -> str:
    """Class and first line of Java's innermost cause, without the texts in `hidden`."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = ""
    for _ in range(_CAUSES_MAX):
        if cause is None:
            break
        text, cause = str(cause.toString()), cause.getCause()
    lines = (text or f"{type(error).__name__}: {error}").strip().splitlines()
    return _URL_PASSWORD.sub("://***@", hide(lines[0], hidden))[:_CAUSE_CHARACTERS_MAX]


def _why_not_started(error: Exception, *, hidden: Iterable[str]) -> str:
    """Without the names of Java's and Python's classes."""
    text = root_cause(error, hidden=hidden)
    if "JAVA_GATEWAY_EXITED" in text:
        return "Java ended at once; what it said is in the run's logs, or above"
    return _CLASS.sub("", text)


def _has_store(session: Any, storage: SparkStorage | None) -> bool:
    if storage is None:
        return True
    if is_remote(session):  # which says so only when it looks for a file
        try:
            _ = session.read.text(f"{storage.lake}/{STATE_FOLDER}/{uuid4().hex}").schema
        except Exception as error:
            return _NO_CLASS.search(str(error)) is None  # what else is wrong, a statement says
        return True
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    try:
        session._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(storage.scheme, hadoop)
    except Exception as error:
        if getattr(error, "java_exception", None) is None:
            raise
        return False
    return True


def _check_store(session: Any, storage: SparkStorage | None) -> None:
    if storage is not None and not _has_store(session, storage):
        raise RuntimeSetupError(
            ("the Connect server" if is_remote(session) else "the Spark of this process")
            + f" cannot open {storage.scheme}:// addresses",
            setting="sink.lake_path",
            expected=JAR_SETS[storage.jar_set].coordinates,
            got="a Spark that was started without these packages",
            next_step="start it with these packages (spark.jars.packages, or --packages)"
            + ("" if is_remote(session) else ", or run this pipeline in a process of its own"),
        )


def _end_jvm(session: Any) -> None:
    from pyspark import SparkContext

    session.stop()
    context: Any = SparkContext
    gateway = context._gateway
    gateway.shutdown()
    gateway.proc.kill()
    gateway.proc.wait()
    _forget_dead_jvm()


def _forget_dead_jvm() -> bool:
    """Whether the JVM has died; pyspark then forgets it, so that another one is started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # pyspark keeps its gateway on the classes, and would connect to it for as long as the process
    # lives.
    context: Any = SparkContext
    gateway = context._gateway
    process = getattr(gateway, "proc", None)
    if process is None or process.poll() is None:
        return False
    with context._lock:
        context._gateway = context._jvm = context._active_spark_context = None
    holder: Any = SparkSession
    holder._instantiatedSession = None
    return True


def session_settings(
    config: SparkConfig, *, warehouse: str, storage: SparkStorage | None = None
) -> dict[str, str]:
    """Secrets included: those of `config` override ours, and `SQL_SETTINGS` override all."""
    cores = str(os.cpu_count() or 2)
    log_settings = (Path(__file__).parent / "log4j2.properties").as_uri()
    # The first compiler only: a run is short, and the second compiler costs more CPU than it saves
    # (session and first merge 15 against 33 CPU-seconds, a warm merge 3.5 against 6). Without it
    # Java reserves only 48 MiB for compiled code, which Spark's generated classes fill in a few
    # batches: then the JVM ends.
    options = (
        f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize={CODE_CACHE_MB}m "
        f"-Dlog4j2.configurationFile={log_settings}"
    )
    if config.is_local:
        options += class_archive.java_options()
        jars = {"spark.driver.extraClassPath": class_archive.class_path(config)}
    else:  # the jars are sent to executors on other machines
        own = config.settings.get("spark.jars", "")
        jars = {
            "spark.jars": ",".join(
                [
                    *(jar.as_uri() for jar in (*jar_paths(), *_stores_jars(storage))),
                    *([own] if own else []),
                ]
            )
        }
    return {
        "spark.app.name": "cdc_pipeline",
        "spark.master": config.master,
        "spark.driver.memory": config.driver_memory,
        "spark.driver.extraJavaOptions": options,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": warehouse,
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.databricks.delta.snapshotPartitions": "2",
        # Optional by Delta's protocol; see `merge_settings`.
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
        # Each MERGE reads files whose checksums were just compared: reading them twice yields the
        # same rows.
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_REMEMBERED,
        **_LOG_STORES,
        **_hadoop_settings(storage),
        **config.settings,
        **jars,
        **SQL_SETTINGS,
    }
