"""Replace the whole content of a target by that of a side table, in one commit (K2, K3, K17, K18).

The side table lies in the same lake and was built by this program. Readers by path see the old rows
until the commit and the new ones after it; a new table appears with all of its rows.

Rules:
- *Adoption* reads and writes no row and needs no JVM: the side table's files get a second name in
  the target's folder (a hard link; in an object store a copy by the store itself), and one commit
  names them with their statistics, tags and deletion vectors, removes every old file, and takes
  over columns, partitions, clustering and properties. It is done if `_why_not_adopted` finds no
  obstacle; otherwise Spark writes the same rows by one CREATE OR REPLACE TABLE AS SELECT.
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
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cdc_pipeline.errors import StagingError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedTarget
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.commit import (
    COMMIT_NOTE,
    MERGE_STEP,
    transaction_id,
    transaction_version,
)
from cdc_pipeline.sink.delta.deletion_vectors import is_readable
from cdc_pipeline.sink.delta.features import PROPERTIES
from cdc_pipeline.sink.delta.log import (
    FEATURE_OPERATION,
    clear_interrupted_create,
    maintenance_note,
)
from cdc_pipeline.sink.delta.plain_commit import put_commit, removed
from cdc_pipeline.sink.delta.plain_table import commit_refusal
from cdc_pipeline.sink.delta.replay import TableState, files_of, is_elsewhere, readable_state
from cdc_pipeline.sink.delta.table_log import (
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    TableLog,
    check_owner,
    read_table_log,
)
from cdc_pipeline.sink.durable.retention import FILE_RETENTION, LOG_CLEANUP, LOG_RETENTION
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.replaced import ReplacedRows
from cdc_pipeline.sink.modes.rescue import with_rescued_column
from cdc_pipeline.sink.modes.tables import with_comments
from cdc_pipeline.sink.read.read import old_commits_readable, table_frame
from cdc_pipeline.sink.replace.replaced_metadata import (
    comments_of,
    features_of,
    mapping_mode,
    merged_protocol,
    properties_for_spark,
    replaced_metadata,
)
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.sql import (
    properties_sql,
    quoted,
    set_properties_sql,
    table_at,
    text_literal,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NAMES_AT_A_TIME: Final = 16  # each is a copy in an object store
_COPY_BYTES_MAX: Final = 5 << 30  # S3's CopyObject
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9._=/-]+")
_CLUSTERING: Final = "delta.clustering"
_RETENTION: Final = (LOG_RETENTION, FILE_RETENTION, LOG_CLEANUP)


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


class Replacing(NamedTuple):
    """`old`: None if there is no table, and `version` is -1; `retention`: properties of the lake's
    configuration, which override both tables'; `told`: comments that the target had from its
    source.
    """

    path: Path
    record: BatchRecord
    target: RecordedTarget
    side: SideTable
    old: TableState | None
    version: int
    retention: Mapping[str, str]
    told: Mapping[str, str]

    @property
    def keeps_anything(self) -> bool:
        content = self.target.content
        assert content is not None
        return self.old is not None and content.keeps_anything

    def metadata(self) -> dict[str, Any]:
        return replaced_metadata(
            self.side.state.metadata,
            None if self.old is None else self.old.metadata,
            source=self.record.source,
            table=self.target.table,
            app_id=self.target.app_id,
            extra=self.retention,
            told=self.told,
        )


def replacing(
    path: Path,
    record: BatchRecord,
    target: RecordedTarget,
    *,
    paths: LakePaths,
    cut: Cut | None,
    properties: Mapping[str, str],
) -> Replacing | None:
    """None if the batch has replaced it; needs no JVM. `cut`: the lake's last. Raises StagingError:
    the side table is not as recorded; LakeStateError: the place is another's, or a log does not
    reach back.
    """
    assert target.content is not None
    there = read_table_log(path)
    if is_replaced(there, record, target, path=path):
        return None
    folder = paths.lake / target.content.path
    meanwhile = {other.app_id for other in record.targets if paths.table(other.table) == folder}
    side = SideTable(folder, target, app_ids={target.content.app_id, *meanwhile})
    old = None if there is None else readable_state(path, there.version)
    retention = {name: properties[name] for name in _RETENTION if name in properties}
    before = None if cut is None else cut.tables.get(target.table)
    told = {} if before is None else before.spec.comments
    version = -1 if there is None else there.version
    return Replacing(path, record, target, side, old, version, retention, told)


def adopt(what: Replacing, *, note: str, check_lock: Callable[[], None]) -> bool:
    """Replace by a commit of ours. `check_lock` is called before the commit (K16). False, with
    nothing done, if Spark must do it. VersionTakenError: another commit came first.
    """
    path, target, side, old = what.path, what.target, what.side, what.old
    metadata = what.metadata()
    protocol = merged_protocol(None if old is None else old.protocol, side.state.protocol)
    if _why_not_adopted(what, metadata, protocol):
        return False
    side.share(path)
    assert target.content is not None
    coming = side.state.adds
    # No commit may both remove and add a file: one that the table has, because it got it from the
    # other table or gave it to it, stays.
    stay = coming.keys() & (old.adds.keys() if old and target.content.renamed_from else set())
    now_ms = int(time.time() * 1000)
    version = transaction_version(what.record.batch_number, MERGE_STEP)
    actions: list[dict[str, Any]] = [{"metaData": metadata}]
    if old is None or protocol != old.protocol:
        actions.append({"protocol": protocol})
    actions.append({"txn": {"appId": target.app_id, "version": version, "lastUpdated": now_ms}})
    if _CLUSTERING in side.state.domains:
        actions.append({"domainMetadata": side.state.domains[_CLUSTERING]})
    elif old is not None and _CLUSTERING in old.domains:
        actions.append({"domainMetadata": {**old.domains[_CLUSTERING], "removed": True}})
    if old is not None:
        actions += [removed(add) for name, add in old.adds.items() if name not in stay]
    actions += [
        {"add": {**add, "modificationTime": now_ms, "dataChange": True}}
        for name, add in coming.items()
        if name not in stay
    ]
    reach("before_replaced")
    check_lock()
    parameters = {"mode": "Overwrite", "partitionBy": "[]"}
    put_commit(path, what.version + 1, actions, "WRITE", parameters, note=note)
    return True


def replace_by_spark(
    session: SparkSession,
    what: Replacing,
    *,
    settings: MergeSettings,
    check_lock: Callable[[], None],
) -> None:
    """Replace by one statement of Spark; see `adopt`."""
    path, target, side, old = what.path, what.target, what.side, what.old
    if old is None:
        side.check_folder(path)
    else:
        if mapping_mode(old.metadata) == "none" != mapping_mode(side.state.metadata):
            _map_columns(session, path)  # Delta does not start it in a commit that replaces a table
        if side.state.metadata.get("partitionColumns"):
            _end_clustering(path, check_lock)
    settings.large_batch(side.size_bytes)
    with old_commits_readable(session):
        rows = table_frame(session, side.path, version=side.version)
        if what.keeps_anything:
            described = target.with_spec(columns=target.columns_before or target.spec.columns)
            assert target.content is not None
            kept = table_frame(session, path, version=target.content.kept_version)
            rows = _replaced_rows(session, what.record, described, rows, kept)
        metadata = what.metadata()
        with_comments(rows, comments_of(metadata)).createOrReplaceTempView("replaced")
        statement = f"CREATE OR REPLACE TABLE {table_at(path)} USING delta{_layout_sql(side.state)}"
        if metadata.get("description"):
            statement += f" COMMENT {text_literal(metadata['description'])}"
        # Of a table that it replaces, Delta switches no feature on by itself.
        features = {
            f"delta.feature.{name}": "supported"
            for name in side.state.protocol.get("readerFeatures", ())
        }
        properties = properties_sql(features | properties_for_spark(metadata))
        statement += f" TBLPROPERTIES ({properties}) AS SELECT * FROM replaced"
        reach("before_replaced")
        check_lock()
        version = transaction_version(what.record.batch_number, MERGE_STEP)
        with transaction_id(session, target.app_id, version):
            session.sql(statement).collect()


def _map_columns(session: SparkSession, path: Path) -> None:
    """In a commit that changes no row."""
    there, note = read_table_log(path), session.conf.get(COMMIT_NOTE)
    session.conf.set(COMMIT_NOTE, maintenance_note(there.app_id if there is not None else ""))
    try:
        session.sql(set_properties_sql(path, dict([PROPERTIES["columnMapping"]])))
    finally:
        session.conf.set(COMMIT_NOTE, str(note))


def _end_clustering(path: Path, check_lock: Callable[[], None]) -> None:
    """Spark has no statement for it, and replaces no such table by one with partitions."""
    there = read_table_log(path)
    if there is None:
        return
    old = readable_state(
        path, there.version
    )  # the commit's own base: `_map_columns` may have committed
    if "clustering" not in features_of(old.protocol):
        return
    features, settings = features_of(old.protocol), old.metadata.get("configuration", {})
    versions = (old.protocol["minReaderVersion"], old.protocol["minWriterVersion"])
    if commit_refusal(features, settings, versions=versions):
        return  # Spark's own error says what it refuses
    kept = [name for name in old.protocol["writerFeatures"] if name != "clustering"]
    actions: list[dict[str, Any]] = [{"protocol": {**old.protocol, "writerFeatures": kept}}]
    if _CLUSTERING in old.domains:
        actions.append({"domainMetadata": {**old.domains[_CLUSTERING], "removed": True}})
    parameters = {"featureName": "clustering", "truncateHistory": "false"}
    note = maintenance_note(there.app_id)
    check_lock()
    put_commit(path, there.version + 1, actions, FEATURE_OPERATION, parameters, note=note)


def _layout_sql(state: TableState) -> str:
    partitions = state.metadata.get("partitionColumns") or []
    if partitions:
        return f" PARTITIONED BY ({', '.join(map(quoted, partitions))})"
    if _CLUSTERING not in state.domains:
        return ""
    fields = json.loads(state.metadata["schemaString"])["fields"]
    names = {
        field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"]): field[
            "name"
        ]
        for field in fields
    }
    configuration = json.loads(state.domains[_CLUSTERING]["configuration"])
    columns = [names[column[0]] for column in configuration["clusteringColumns"]]
    return f" CLUSTER BY ({', '.join(map(quoted, columns))})" if columns else ""


def _why_not_adopted(
    what: Replacing, metadata: Mapping[str, Any], protocol: Mapping[str, Any]
) -> str:
    """ "" if the side table's files can be the target's; by what this is after the commit."""
    side = what.side
    if what.keeps_anything:
        return "rows or values of the old table are kept"
    files = list(side.state.adds.values())
    refusal = commit_refusal(
        features_of(protocol),
        metadata["configuration"],
        versions=(protocol["minReaderVersion"], protocol["minWriterVersion"]),
    )
    if refusal:
        return refusal
    vectors = (file.get("deletionVector") for file in files)
    if any(is_elsewhere(file["path"]) for file in files) or not all(map(is_readable, vectors)):
        return "files of the side table are outside its folder"
    if side.is_in_store and any(not _PLAIN_KEY.fullmatch(file["path"]) for file in files):
        return "the store's library may write these names differently than Spark"
    if side.is_in_store and any(int(file["size"]) > _COPY_BYTES_MAX for file in files):
        return "these objects are too large for the store to copy in one request"
    return ""


class SideTable:
    """A version, read from its log. StagingError: it does not exist, or is not as recorded."""

    def __init__(self, path: Path, target: RecordedTarget, *, app_ids: Collection[str]) -> None:
        """`app_ids` are those that the table may have by now; the version is the content's own."""
        content = target.content
        assert content is not None
        self.path, self._content, self._table = path, content, target.table
        self.version = content.version
        there = read_table_log(path)
        if there is None or there.app_id not in app_ids or there.version < content.version:
            raise self._differs(
                "no table" if there is None else f"version {there.version} of {there.app_id}"
            )
        self.state = readable_state(path, content.version)
        self.size_bytes = self.state.size_bytes
        if content.files >= 0 and (self.state.files, self.size_bytes) != (
            content.files,
            content.size_bytes,
        ):
            raise self._differs(f"{self.state.files} files of {self.size_bytes} bytes")

    @property
    def is_in_store(self) -> bool:
        return is_object(self.path)

    def share(self, folder: Path) -> None:
        """By a name in another table's folder. StagingError: a file is missing, or differs."""
        storage = storage_of(folder)

        def give(file: str) -> set[Path]:
            size_bytes = int(self.state.adds[file]["size"])
            folders = set()
            for number, at in enumerate(files_of(self.path, file)):
                try:
                    if not number and at.stat().st_size != size_bytes:
                        raise self._differs(
                            f"{at} of {at.stat().st_size} bytes instead of {size_bytes}"
                        )
                    to = folder / at.relative_to(self.path).as_posix()
                    storage.share(at, to)
                except FileNotFoundError:
                    raise self._differs(f"no file {at}") from None
                folders.add(to.parent)
            return folders

        folder.mkdir(parents=True, exist_ok=True)
        self.check_folder(folder)
        with ThreadPoolExecutor(_NAMES_AT_A_TIME, "adopt") as threads:
            folders = set[Path]().union(*threads.map(give, self.state.adds))
        if not is_object(folder):
            linked = {
                parent
                for at in folders
                for parent in (at, *at.parents)
                if parent.is_relative_to(folder)
            }
            storage.make_durable(*sorted(linked, key=str, reverse=True), folder.parent)

    def check_folder(self, folder: Path) -> None:
        """A folder without a table holds only names that an earlier try gave."""
        if read_table_log(folder) is None:
            ours = {
                at.relative_to(self.path).parts[0]
                for name in self.state.names
                for at in files_of(self.path, name)
            }
            clear_interrupted_create(folder, table=self._table, known=ours)

    def _differs(self, got: str) -> StagingError:
        content = self._content
        return StagingError(
            f"a loaded table is not in its recorded state: {self.path}",
            table=self._table,
            expected=f"version {content.version} of {content.app_id}: {content.files} files of "
            f"{content.size_bytes} bytes",
            got=got,
            next_step="take a new snapshot of the table",
        )


def _replaced_rows(
    session: SparkSession,
    record: BatchRecord,
    target: RecordedTarget,
    loaded: DataFrame,
    there: DataFrame,
) -> DataFrame:
    target, mode = with_rescued_column(target), SINK_MODES[target.spec.mode]
    rows = ReplacedRows(session, record, target, loaded, there)
    return session.sql(mode.replaced_sql(rows))
