"""Build one Delta commit directly: rows marked as deleted and rows added, under one transaction id;
or run one DML statement under an id (`run_once`), unless the table has it (K2).

Delta's own MERGE reads the target three times (which files, which rows to write, which rows to
mark) and joins it each time. If the new rows need nothing of the old ones, one read is enough, and
this module makes the commit from its result.

Rules:
- Delta's own code, called through the JVM, decides the meaning of a commit: the snapshot, the
  choice of files by statistics, the data files, the bitmaps on disk, conflicts with other writers,
  the log. The calls fit the one version of Delta that `jars` fetches; a test compares the results
  with a plain model.
- A commit carries its transaction id as an action, never by a setting of the session.
- A file's statistics stay true: bounds become wide when rows are marked (`tightBounds`).
- The id is ``16 * batch + step``; a batch has at most 16 DML statements for a target, in the order
  of their numbers.
- The id is a setting of a separate session and is always unset afterwards: a second statement under
  the same id would be skipped silently.

Source: Delta's protocol: "Add File and Remove File", "Deletion Vectors", "Per-file Statistics",
"Transaction Identifiers".
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.sink.delta.active_files import DataFile
from cdc_pipeline.sink.delta.data_file import json_text, read_statistics
from cdc_pipeline.sink.delta.deletion_vectors import bitmap_bytes
from cdc_pipeline.sink.delta.log import TableLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def forget_logs(session: SparkSession) -> None:
    """Some were set back without Delta's knowledge."""
    context: Any = session
    context._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def make_active(session: SparkSession) -> None:
    """Make a session the active one of the thread, before Delta's own classes are called.

    Delta takes settings (the note of a commit) from it, and reads a checkpoint's footer in its
    name alone: without one it fails, though Spark has a default session.
    """
    context: Any = session
    context._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(context._jsparkSession)


class TableCommit:
    """A commit under way, based on the snapshot that is the latest when it begins."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        context: Any = session
        self._session = session
        self._jvm = context._jvm
        self._delta = self._jvm.org.apache.spark.sql.delta
        make_active(session)
        self._log = self._delta.DeltaLog.forTable(context._jsparkSession, str(path))
        self._transaction = self._log.startTransaction()
        self._actions: list[Any] = []
        self._store: Any = None
        self.scanned_bytes = 0

    @property
    def version(self) -> int:
        return int(self._transaction.readVersion())

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The log's own words for the table as it is."""
        if self.version < 0:
            return None
        metadata: dict[str, Any] = json.loads(self._transaction.snapshot().metadata().json())[
            "metaData"
        ]
        return metadata

    def transaction_version(self, app_id: str) -> int:
        """-1 if there is none. Runs a job over the log."""
        return int(self._transaction.txnVersion(app_id))

    def has_transaction(self, app_id: str, version: int, *, there: TableLog) -> bool:
        """Whether the snapshot has a transaction id, or a later one. Another commit of `app_id`
        from now on conflicts. `there` answers without a job if it is of the same version.
        """
        if there.version != self.version or there.app_id != app_id:
            return self.transaction_version(app_id) >= version
        self._transaction.readTxn().addOne(app_id)
        return there.transaction_version >= version

    def scan(self, predicate: str | None) -> DataFrame | None:
        """The rows in the files that may hold rows for the predicate (SQL text), with the
        columns ``_metadata.file_name`` and ``_metadata.row_index``; None if there are no such
        files. Other writers' changes of these files conflict. `scanned_bytes` is their size.
        """
        from pyspark.sql import DataFrame

        snapshot = self._transaction.snapshot()
        none = self._none()
        if predicate is None:
            files = self._transaction.filterFiles()
        else:
            whole = DataFrame(
                self._log.createDataFrame(snapshot, self._sequence([]), False, none), self._session
            )
            condition = whole.filter(predicate)._jdf.queryExecution().analyzed().condition()
            files = self._transaction.filterFiles(self._sequence([condition]), True)
        self.scanned_bytes = sum(files.apply(index).size() for index in range(files.size()))
        if files.isEmpty():
            return None
        return DataFrame(self._log.createDataFrame(snapshot, files, False, none), self._session)

    def data_files(self, names: list[str]) -> dict[str, DataFile]:
        from pyspark.sql import DataFrame, functions

        listed = DataFrame(self._transaction.snapshot().allFiles().toDF(), self._session)
        rows = listed.selectExpr(
            "substring_index(path, '/', -1) AS name", "to_json(struct(*)) AS action"
        )
        files = {}
        for row in rows.where(functions.url_decode("name").isin(names)).collect():
            action = json.loads(row["action"])
            statistics = read_statistics(action.get("stats"))
            name = unquote(row["name"])
            files[name] = DataFile(name, action, statistics)
        return files

    def can_mark(self, files: Sequence[DataFile]) -> bool:  # noqa: ARG002
        """Delta knows all kinds of deletion vectors."""
        return True

    def mark_deleted(self, marked: list[tuple[DataFile, NDArray[np.int64]]]) -> int:
        """By numbers in the file; every file has `rows`. Returns how many were not marked."""
        now_ms = int(time.time() * 1000)
        writer: Any = None
        newly = 0
        for file, rows in marked:
            wide = {
                **file.action,
                "stats": json_text({**file.statistics, "tightBounds": False}),
                "dataChange": True,
            }
            add = self._action("add", wide)
            bitmap = self._bitmap(bitmap_bytes(rows))
            before = 0
            if add.deletionVector() is not None:
                there = self._read_bitmap(add.deletionVector())
                before = int(there.cardinality())
                bitmap.merge(there)
            cardinality = int(bitmap.cardinality())
            newly += cardinality - before
            if cardinality == before:
                continue
            if cardinality == file.rows:
                self._actions.append(add.removeWithTimestamp(now_ms, True))
                continue
            if writer is None:
                writer = self._new_bitmap_file()
            place = writer[0].write(bitmap.serializeAsByteArray(self._portable()))
            described = {
                "storageType": "u",
                "pathOrInlineDv": writer[1],
                "offset": place.offset(),
                "sizeInBytes": place.length(),
                "cardinality": cardinality,
                "maxRowIndex": int(bitmap.last().get()),
            }
            # Through JSON: only Delta's own reader makes the optional numbers of the types that
            # Scala expects.
            descriptor = self._action("add", {**wide, "deletionVector": described}).deletionVector()
            both = add.removeRows(descriptor, False, True)
            self._actions += [both._1(), both._2()]
        if writer is not None:
            writer[0].close()
        return newly

    def read_whole_table(self) -> None:
        """Other writers' rows conflict from now on."""
        self._transaction.readWholeTable()

    def add_file(self, add: dict[str, Any]) -> None:
        """By the fields of its ``add`` action; the file is already written."""
        self._actions.append(self._action("add", add))

    def append(self, rows: DataFrame) -> None:
        """The columns match the table's by name."""
        written = self._transaction.writeFiles(rows._jdf)
        self._actions += [written.apply(index) for index in range(written.size())]

    def adopt(self, files: list[dict[str, Any]]) -> None:
        now_ms = int(time.time() * 1000)
        for file in files:
            self._actions.append(
                self._action("add", {**file, "modificationTime": now_ms, "dataChange": True})
            )

    def commit(self, *, app_id: str, version: int, operation: Any = None) -> int:
        """Return the table's new version; `operation` is its name in the table's history. Raises
        Py4JJavaError: another writer's earlier commit conflicts, or the log cannot be written.
        """
        now_ms = self._some(int(time.time() * 1000))
        actions = self._jvm.org.apache.spark.sql.delta.actions
        mark = actions.SetTransaction(app_id, version, now_ms)
        by_hand = getattr(self._delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
        return int(
            self._transaction.commit(self._sequence([mark, *self._actions]), operation or by_hand)
        )

    # -- the JVM's side ----------------------------------------------------------------------------

    def _none(self) -> Any:
        return self._jvm.scala.Option.empty()

    def _some(self, value: object) -> Any:
        return self._jvm.scala.Option.apply(value)

    def _sequence(self, items: list[Any]) -> Any:
        sequence = getattr(self._jvm.scala.collection.immutable, "Nil$").__getattr__("MODULE$")
        for item in reversed(items):
            sequence = sequence.prepended(item)
        return sequence

    def _action(self, kind: str, fields: dict[str, Any]) -> Any:
        module = getattr(self._delta.actions, "Action$").__getattr__("MODULE$")
        return module.fromJson(json.dumps({kind: fields}))

    def _bitmap(self, content: bytes) -> Any:
        return self._delta.deletionvectors.RoaringBitmapArray.readFrom(bytearray(content))

    def _portable(self) -> Any:
        formats = getattr(self._delta.deletionvectors, "RoaringBitmapArrayFormat$").__getattr__(
            "MODULE$"
        )
        return formats.Portable()

    def _bitmap_store(self) -> Any:
        if self._store is None:
            module = getattr(self._delta.storage.dv, "DeletionVectorStore$").__getattr__("MODULE$")
            self._store = module.createInstance(self._log.newDeltaHadoopConf())
        return self._store

    def _read_bitmap(self, descriptor: Any) -> Any:
        module = getattr(self._delta.deletionvectors, "StoredBitmap$").__getattr__("MODULE$")
        return module.create(descriptor, self._log.dataPath()).load(self._bitmap_store())

    def _new_bitmap_file(self) -> tuple[Any, str]:
        """The writer of a new bitmap file, and its name as descriptors hold it."""
        identity = self._jvm.java.util.UUID.randomUUID()
        store = self._bitmap_store()
        path = store.generateFileNameInTable(
            store.pathWithFileSystem(self._log.dataPath()), identity, ""
        )
        descriptors = getattr(self._delta.actions, "DeletionVectorDescriptor$").__getattr__(
            "MODULE$"
        )
        return store.createWriter(path), str(descriptors.encodeUUID(identity, ""))


STEPS_PER_BATCH: Final = 16
MERGE_STEP: Final = 0

_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"


def transaction_version(batch_number: int, step: int) -> int:
    return STEPS_PER_BATCH * batch_number + step


def run_once(
    session: SparkSession, statement: str, there: TableLog, record: BatchRecord, *, step: int
) -> None:
    """Run a DML statement as one step of a batch, unless the table has it already."""
    version = transaction_version(record.batch_number, step)
    if there.transaction_version >= version:
        return
    with _transaction_id(session, there.app_id, version):
        session.sql(statement).collect()


@contextmanager
def _transaction_id(session: SparkSession, app_id: str, version: int) -> Iterator[None]:
    session.conf.set(_APP_ID, app_id)
    session.conf.set(_APP_VERSION, str(version))
    try:
        yield
    finally:
        session.conf.unset(_APP_ID)
        session.conf.unset(_APP_VERSION)
