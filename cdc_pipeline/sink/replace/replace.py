"""Replace the whole content of a target by that of a side table, in one commit (K2, K3, K17, K18).

The side table lies in the same lake and was built by this program. Readers by path see the old rows
until the commit and the new ones after it; a new table appears with all of its rows.

Rules:
- *Adoption* reads and writes no row: the side table's files get a second name in the target's
  folder (a hard link; in an object store a copy by the store itself), and the commit names them
  with their statistics, tags and deletion vectors, removes every old file, and takes over columns,
  partitions, clustering and properties. It is done if `_why_not_adopted` finds no obstacle;
  otherwise Spark writes the same rows, also in one commit.
- The commit carries the target's *new* application id with the batch's transaction id, and the
  table's properties name it: state of the old id that RESTORE or a backup brought back does not
  affect the new one (K3).
- File names are the side table's own, which hold a UUID: a crash before the commit leaves files
  that the rerun finds and reuses, and that a vacuum removes if there is no rerun (`forget`).
- A file's age counts from when it got its name here: a vacuum spares files that no commit names for
  the table's retention, of a day or more, and a rerun resets the age.
- If another writer commits between read and commit, the work is tried again (`delta.failures`): the
  commit has read everything.
- The target's place must hold a table of this source and target, or nothing (K16).
- The rows of another target whose table was renamed are taken over the same way (K28), from the
  version of its table that the record names. Targets that exchange their rows are replaced in any
  order: that version stays as it is, whatever the batch does to the other table. A file that both
  have under the same name, because one got it from the other, stays.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.errors import StagingError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.commit import MERGE_STEP, TableCommit, make_active, transaction_version
from cdc_pipeline.sink.delta.features import PROPERTIES
from cdc_pipeline.sink.delta.log import (
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    TableLog,
    check_owner,
    clear_interrupted_create,
    maintenance_note,
    read_table_log,
)
from cdc_pipeline.sink.durable.retention import FILE_RETENTION, LOG_CLEANUP, LOG_RETENTION
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.replaced import ReplacedRows
from cdc_pipeline.sink.modes.rescue import with_rescued_column
from cdc_pipeline.sink.read.cuts import files_of
from cdc_pipeline.sink.read.read import old_commits_readable, table_frame
from cdc_pipeline.sink.replace.replaced_metadata import mapping_mode, replaced_metadata
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.sql import properties_sql, table_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NAMES_AT_A_TIME: Final = 16  # each is a copy in an object store
_COPY_BYTES_MAX: Final = 5 << 30  # S3's CopyObject
_NOTE: Final = "spark.databricks.delta.commitInfo.userMetadata"
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9._=/-]+")
_CLUSTERING: Final = "delta.clustering"
# Features that a table's owner may have switched on and that only Delta's own writer supports.
_WRITTEN_BY_DELTA: Final = re.compile(
    r"delta\.(enableRowTracking|enableChangeDataFeed|constraints\..*|enableIcebergCompat.*|"
    r"universalFormat.*)"
)


def is_replaced(
    there: TableLog | None, record: BatchRecord, target: RecordedTarget, *, path: Path
) -> bool:
    """Raises LakeStateError: a table that is not this source's lies in the target's place."""
    if there is None:
        return False
    if there.app_id != target.app_id:
        if not is_ours(there, record.source, target.table):
            check_owner(there, target.table, target.app_id, path=path)
        return False
    return there.transaction_version >= transaction_version(record.batch_number, MERGE_STEP)


def is_ours(there: TableLog, source: str, table: str) -> bool:
    """Whether a table was made for this target of this source, under any application id."""
    said = there.properties
    return (said.get(SOURCE_PROPERTY), said.get(TABLE_PROPERTY)) == (source, table)


def replace_content(
    session: SparkSession,
    path: Path,
    record: BatchRecord,
    target: RecordedTarget,
    *,
    paths: LakePaths,
    properties: Mapping[str, str],
    settings: MergeSettings,
    check_lock: Callable[[], None],
) -> None:
    """Replace what the target holds by the recorded content, unless that is done. A new table gets
    `properties`; `check_lock` raises if the source is no longer locked (K16); called before the
    commit. Raises StagingError: the side table is not as recorded; LakeStateError: a table that is
    not this source's lies in the target's place.
    """
    assert target.content is not None
    if is_replaced(read_table_log(path), record, target, path=path):
        return
    settings.small_batch()
    folder = paths.lake / target.content.path
    meanwhile = {other.app_id for other in record.targets if paths.table(other.table) == folder}
    side = SideTable(session, folder, target, app_ids={target.content.app_id, *meanwhile})
    commit = ContentCommit(session, path)
    if commit.metadata is not None and mapping_mode(commit.metadata) == "none" != mapping_mode(
        side.metadata
    ):
        _map_columns(session, path)  # Delta does not start it in a commit that replaces a table
        commit = ContentCommit(session, path)
    old = commit.metadata
    refused = _why_not_adopted(target, side, old)
    if not refused:
        side.share(path)
    kept = (LOG_RETENTION, FILE_RETENTION, LOG_CLEANUP)
    retention = {name: properties[name] for name in kept if name in properties}
    rows: DataFrame | None = None
    if refused:
        rows = side.frame()
        if old is not None and _keeps_anything(target):
            settings.large_batch(side.size_bytes)
            described = target.with_spec(columns=target.columns_before or target.spec.columns)
            rows = replaced_rows(session, record, described, rows, commit.frame())
    metadata = replaced_metadata(
        side.metadata,
        old,
        rows=None if rows is None else json.loads(rows.schema.json()),
        source=record.source,
        table=target.table,
        app_id=target.app_id,
        extra=retention,
    )
    commit.take_over(metadata, side)
    if rows is not None:
        commit.remove_all()
        settings.large_batch(side.size_bytes)
        commit.append(rows)
        settings.small_batch()
    else:
        stay = commit.remove_all(but=side.files if target.content.renamed_from else ())
        commit.adopt([file for file in side.files if _identity(file) not in stay])
    reach("before_replaced")
    check_lock()
    version = transaction_version(record.batch_number, MERGE_STEP)
    commit.commit(app_id=target.app_id, version=version, operation=commit.overwriting())


def _map_columns(session: SparkSession, path: Path) -> None:
    """In a commit that changes no row."""
    there = read_table_log(path)
    note = session.conf.get(_NOTE, None)
    session.conf.set(_NOTE, maintenance_note(there.app_id if there is not None else ""))
    try:
        name, value = PROPERTIES["columnMapping"]
        session.sql(
            f"ALTER TABLE {table_at(path)} SET TBLPROPERTIES ({properties_sql({name: value})})"
        )
    finally:
        session.conf.unset(_NOTE) if note is None else session.conf.set(_NOTE, note)


def _keeps_anything(target: RecordedTarget) -> bool:
    return target.content is not None and bool(target.content.keeps_rows or target.content.carried)


def _why_not_adopted(target: RecordedTarget, side: SideTable, old: dict[str, Any] | None) -> str:
    """Is "" if the side table's files can be the target's as they are; `old` is its metadata."""
    content = target.content
    assert content is not None
    if old is not None and _keeps_anything(target):
        return "rows or values of the old table are kept"
    for metadata in (side.metadata, old or {}):
        odd = [
            name for name, value in metadata.get("configuration", {}).items() if _is_on(name, value)
        ]
        if odd:
            return f"only Delta's own writer maintains {', '.join(sorted(odd))}"
        if mapping_mode(metadata) == "id":
            return "files without column ids cannot be read by id"
    if any(not _is_relative(file) for file in side.files):
        return "files of the side table are outside its folder"
    if side.is_in_store and any(not _PLAIN_KEY.fullmatch(file["path"]) for file in side.files):
        return "the store's library may write these names differently than Spark"
    if side.is_in_store and any(int(file["size"]) > _COPY_BYTES_MAX for file in side.files):
        return "these objects are too large for the store to copy in one request"
    return ""


def _is_on(name: str, value: str) -> bool:
    return value != "false" and _WRITTEN_BY_DELTA.fullmatch(name) is not None


def _identity(file: Mapping[str, Any]) -> tuple[str, str, str, int]:
    vector = file.get("deletionVector") or {}
    return (
        file["path"],
        vector.get("storageType", ""),
        vector.get("pathOrInlineDv", ""),
        int(vector.get("offset") or 0),
    )


def _is_relative(file: dict[str, Any]) -> bool:
    vector = file.get("deletionVector") or {}
    return not re.match(r"/|[A-Za-z][A-Za-z0-9+.-]*:", file["path"]) and vector.get(
        "storageType", "i"
    ) in ("u", "i")


class SideTable:
    """A version of a side table, read from its log. `metadata` is its action there, `files` are
    the ``add`` actions of active files, with statistics. Raises StagingError: it does not exist,
    or is not as recorded.
    """

    def __init__(
        self, session: SparkSession, path: Path, target: RecordedTarget, *, app_ids: Collection[str]
    ) -> None:
        """`app_ids` are those that the table may have by now; the version is the content's own."""
        context: Any = session
        content = target.content
        assert content is not None
        self._session, self._path, self._content, self._table = session, path, content, target.table
        there = read_table_log(path)
        if there is None or there.app_id not in app_ids or there.version < content.version:
            raise self._differs(
                "no table" if there is None else f"version {there.version} of {there.app_id}"
            )
        make_active(session)
        log = context._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            context._jsparkSession, str(path)
        )
        self.snapshot = log.getSnapshotAt(
            content.version,
            *(getattr(log, f"getSnapshotAt$default${at}")() for at in (2, 3, 4)),
        )
        self.metadata: dict[str, Any] = json.loads(self.snapshot.metadata().json())["metaData"]
        self.files: list[dict[str, Any]] = [
            json.loads(add.json())["add"] for add in self.snapshot.allFiles().collect()
        ]
        self.size_bytes = sum(int(file["size"]) for file in self.files)
        file_count_and_bytes = (len(self.files), self.size_bytes)
        if content.files >= 0 and file_count_and_bytes != (content.files, content.size_bytes):
            raise self._differs(
                f"{file_count_and_bytes[0]} files of {file_count_and_bytes[1]} bytes"
            )

    @property
    def is_in_store(self) -> bool:
        return is_object(self._path)

    def share(self, folder: Path) -> None:
        """Give each file its name in the folder of a table as well, durably. Raises
        StagingError: a file is missing or has another size.
        """
        storage = storage_of(folder)

        def give(file: dict[str, Any]) -> set[Path]:
            folders = set()
            for number, at in enumerate(self._files_of(file)):
                try:
                    if not number and at.stat().st_size != int(file["size"]):
                        raise self._differs(
                            f"{at} of {at.stat().st_size} bytes instead of {file['size']}"
                        )
                    to = folder / at.relative_to(self._path).as_posix()
                    storage.share(at, to)
                except FileNotFoundError:
                    raise self._differs(f"no file {at}") from None
                folders.add(to.parent)
            return folders

        folder.mkdir(parents=True, exist_ok=True)
        self._check_folder(folder)
        with ThreadPoolExecutor(_NAMES_AT_A_TIME, "adopt") as threads:
            folders = set[Path]().union(*threads.map(give, self.files))
        if not is_object(folder):
            linked = {
                parent
                for at in folders
                for parent in (at, *at.parents)
                if parent.is_relative_to(folder)
            }
            storage.make_durable(*sorted(linked, key=str, reverse=True), folder.parent)

    def _check_folder(self, folder: Path) -> None:
        """A folder without a table holds only names that an earlier try gave."""
        if read_table_log(folder) is None:
            ours = {
                at.relative_to(self._path).parts[0]
                for file in self.files
                for at in self._files_of(file)
            }
            clear_interrupted_create(folder, table=self._table, known=ours)

    def frame(self) -> DataFrame:
        with old_commits_readable(self._session):
            return table_frame(self._session, self._path, version=self._content.version)

    def _files_of(self, file: dict[str, Any]) -> list[Path]:
        vector = file.get("deletionVector") or {}
        name = (
            file["path"],
            str(vector.get("storageType", "")),
            str(vector.get("pathOrInlineDv", "")),
        )
        return list(files_of(self._path, name))

    def _differs(self, got: str) -> StagingError:
        content = self._content
        return StagingError(
            f"a loaded table is not in its recorded state: {self._path}",
            table=self._table,
            expected=f"version {content.version} of {content.app_id}: {content.files} files of "
            f"{content.size_bytes} bytes",
            got=got,
            next_step="take a new snapshot of the table",
        )


class ContentCommit(TableCommit):
    """A commit that removes all content of a table; there may be no table yet."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        context: Any = session
        # Cached state of a folder may be that of a table that was moved away since.
        log = context._jvm.org.apache.spark.sql.delta.DeltaLog
        log.invalidateCache(
            context._jsparkSession, context._jvm.org.apache.hadoop.fs.Path(str(path))
        )
        super().__init__(session, path)
        self._path = path

    def frame(self) -> DataFrame:
        with old_commits_readable(self._session):
            return table_frame(self._session, self._path, version=self.version)

    def take_over(self, metadata: dict[str, Any], side: SideTable) -> None:
        """Set this metadata, and the side table's protocol and clustering."""
        described = self._action("metaData", metadata)
        there = self._transaction.snapshot()
        if self.version < 0:
            self._transaction.updateMetadataForNewTable(described)
        else:
            self._transaction.updateMetadataForTableOverwrite(described)
        wanted = self._transaction.protocol().merge(self._sequence([side.snapshot.protocol()]))
        if not wanted.equals(self._transaction.protocol()):
            self._transaction.updateProtocol(wanted)
        domains = {
            str(domain.domain()): domain for domain in self._each(side.snapshot.domainMetadata())
        }
        if _CLUSTERING in domains:
            self._actions.append(domains[_CLUSTERING])
        elif self.version >= 0:
            for domain in self._each(there.domainMetadata()):
                if str(domain.domain()) == _CLUSTERING:
                    gone = {
                        "domain": _CLUSTERING,
                        "configuration": domain.configuration(),
                        "removed": True,
                    }
                    self._actions.append(self._action("domainMetadata", gone))

    def remove_all(self, *, but: Sequence[dict[str, Any]] = ()) -> set[tuple[str, str, str, int]]:
        """Remove every file; another writer's change of any conflicts. Of the files `but`, which
        the commit adds, those that the table already has stay, since no commit may both remove
        and add a file: returns them.
        """
        now_ms, stay = int(time.time() * 1000), set()
        coming = {_identity(file) for file in but}
        for add in self._each(self._transaction.filterFiles()):
            identity = _identity(json.loads(add.json())["add"]) if coming else ("", "", "", 0)
            if identity in coming:
                stay.add(identity)
            else:
                self._actions.append(add.removeWithTimestamp(now_ms, True))
        return stay

    def overwriting(self) -> Any:
        mode = self._jvm.org.apache.spark.sql.SaveMode.Overwrite
        none = self._none()
        rest = [none, none, none, none, self._some(True), none, none, none]
        return getattr(self._delta, "DeltaOperations$Write")(mode, *rest)

    def _each(self, items: Any) -> list[Any]:
        return [items.apply(index) for index in range(items.size())]


def replaced_rows(
    session: SparkSession,
    record: BatchRecord,
    target: RecordedTarget,
    loaded: DataFrame,
    there: DataFrame,
) -> DataFrame:
    target, mode = with_rescued_column(target), SINK_MODES[target.spec.mode]
    own_columns = mode.own_columns(target.spec.columns, target.spec.key)
    rows = ReplacedRows(session, record, target, loaded, there, own_columns=own_columns)
    return session.sql(mode.replaced_sql(rows))
