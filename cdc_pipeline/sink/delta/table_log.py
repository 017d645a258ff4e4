"""The state of a Delta table from its log, without a JVM (K3), and who owns it (K16: one writer per
target).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.sink.delta.log import (
    LOG_FOLDER,
    is_interrupted_create,
    new_in_place_of,
    unreadable_log,
)
from cdc_pipeline.sink.delta.plain_table import (
    MappedColumn,
    mapped_columns,
    rows_refusal,
    unknown_to_readers,
)

if TYPE_CHECKING:
    from cdc_pipeline.sink.delta.replay import TableState

SOURCE_PROPERTY: Final = "cdc.source"
TABLE_PROPERTY: Final = "cdc.table"
APP_ID_PROPERTY: Final = "cdc.app_id"

_DDL_NAMES: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


@dataclass(frozen=True, slots=True)
class TableLog:
    """`app_id`: "" in a table that the pipeline did not create; `transaction_version`: Delta's
    transaction id under it; -1 if none was committed; `columns`: Delta types as DDL text, "" for
    nested ones; `comments`: "" for the table's own; `needs_spark`: why only Spark may change its
    rows (`plain_table`); `mapped`: by column name, if there is column mapping; `engine`: by which a
    batch was just applied.
    """

    version: int
    app_id: str
    transaction_version: int
    columns: dict[str, str]
    properties: dict[str, str]
    comments: Mapping[str, str] = field(default_factory=dict)
    reader_features: tuple[str, ...] = ()
    needs_spark: str = ""
    mapped: Mapping[str, MappedColumn] = field(default_factory=dict)
    engine: str = ""

    def physical(self, column: str) -> str:
        """The name under which data files and statistics hold a column."""
        return self.mapped[column].name if column in self.mapped else column


def read_table_log(
    path: Path, *, version: int | None = None, is_new: bool = True
) -> TableLog | None:
    """None if there is no table, or only the beginning of one. What the log lists of files is not
    read. Raises LakeStateError: the rest cannot be read; LakeUnreachableError.
    """
    # late: Arrow, which a list of cuts does not need
    from cdc_pipeline.sink.delta.replay import log_files, log_gap, table_state

    state, damage = None, None
    try:
        state = table_state(path, version, names=(), is_new=is_new)
    except LakeStateError as error:
        damage = error
    if state is None:
        with suppress(OSError):
            if log_files(path / LOG_FOLDER)[0] < 0 or is_interrupted_create(path):
                return None
        raise damage or log_gap(path, version)
    try:
        return _table_log(path, state)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise unreadable_log(path, error) from None


def _table_log(path: Path, state: TableState) -> TableLog:
    metadata, protocol = state.metadata, state.protocol
    if unknown := unknown_to_readers(protocol):
        raise LakeStateError(
            f"what the Delta table in {path} is cannot be told: its log needs a newer reader",
            got=unknown,
            next_step=f"let the program that added it remove it, {new_in_place_of(path)}",
        )
    properties = dict(metadata.get("configuration") or {})
    app_id = properties.get(APP_ID_PROPERTY, "")
    fields = json.loads(metadata["schemaString"])["fields"]
    comments = {one["name"]: (one.get("metadata") or {}).get("comment") for one in fields}
    comments[""] = metadata.get("description")
    return TableLog(
        version=state.version,
        app_id=app_id,
        transaction_version=int(state.transactions.get(app_id, -1)) if app_id else -1,
        columns={one["name"]: _ddl_type(one["type"]) for one in fields},
        properties=properties,
        comments={name: text for name, text in comments.items() if text and isinstance(text, str)},
        reader_features=("columnMapping",)
        if protocol["minReaderVersion"] == 2
        else tuple(sorted(protocol.get("readerFeatures") or ())),
        needs_spark=rows_refusal(metadata, protocol, fields),
        mapped=mapped_columns(properties, fields),
    )


def _ddl_type(json_type: object) -> str:
    return _DDL_NAMES.get(json_type, json_type) if isinstance(json_type, str) else ""


def check_owner(there: TableLog, table: str, app_id: str, *, path: Path) -> None:
    """Raises LakeStateError: another source's, created again, or not made by the pipeline."""
    if there.app_id == app_id and there.properties.get(TABLE_PROPERTY) == table:
        return
    owner = there.properties.get(SOURCE_PROPERTY)
    of = (
        f"source {owner}, table {there.properties.get(TABLE_PROPERTY)}, {there.app_id}"
        if owner
        else "another program"
    )
    raise LakeStateError(
        f"the Delta table in {path} is not the one that was created for this target",
        table=table,
        expected=f"application id {app_id}",
        got=f"a table of {of}",
        next_step="move that table away and restore the target from a backup, or use a separate "
        "lake for this source",
    )
