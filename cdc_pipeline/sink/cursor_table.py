"""A cursor stored as rows of a small Delta table, ``_cdc/<source>/cursors`` (SPEC P2, K3).

Rules:
- The table is plain: no reader features, so that any engine can read it, and this module can
  without a JVM.
- A write appends one row in one commit, which is refused if another one came first (no retries): a
  compare-and-swap.
- `entry` numbers the rows; the highest is the latest cursor.
- The newest commit alone has the newest row, if this module has made it: its note says so, and for
  which source. So reading costs the same however many cursors there were.
- The table stays small: each 64th write rewrites it in its own commit, with the newest rows in one
  file, and writes a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from cdc_pipeline.clock import now_us
from cdc_pipeline.errors import CdcError, CursorError, LakeStateError
from cdc_pipeline.lake.parquet import read_parquet
from cdc_pipeline.lake.storage.file_failures import is_refused_by_machine
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import refused, storage_of
from cdc_pipeline.lake.storage.storage_settings import delta_options
from cdc_pipeline.position.cursor import (
    CursorEntry,
    CursorGuard,
    CursorState,
    StoredCursor,
    cursor_document,
    moved_meanwhile,
    of_another_source,
    parse_cursor,
)
from cdc_pipeline.sink.delta.data_file import data_layout, write_data_files
from cdc_pipeline.sink.delta.failures import VersionTakenError
from cdc_pipeline.sink.delta.log import LOG_FOLDER, commit_file, last_checkpoint, read_commit_lines
from cdc_pipeline.sink.delta.plain_commit import new_metadata, put_commit, removed
from cdc_pipeline.sink.delta.replay import TableState, log_files, log_gap, read_actions, table_state
from cdc_pipeline.sink.durable.durability import Commits, make_durable
from cdc_pipeline.text.server_messages import said_by

FORM_VERSION: Final = 1
_ENTRIES_KEPT: Final = 1000
REWRITE_EVERY: Final = 64

_DESCRIPTION = "cdc_pipeline cursors, form {form}"
_SCHEMA = pa.schema(
    [
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("at_us", pa.int64(), nullable=False),
        pa.field("batch_number", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("journal", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("gtid_set", pa.string(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),  # JSON
        pa.field("cursor", pa.string(), nullable=False),  # JSON
    ]
)
_NEXT_STEP = (
    "restore the table from a backup, or remove it: the next run rebuilds the cursor from "
    "the lake's last cut"
)


class DeltaCursorStore:
    """A rewrite keeps `entries_kept` rows; `before` is asked if there is no cursor yet."""

    def __init__(
        self,
        path: Path,
        *,
        source: str,
        entries_kept: int = _ENTRIES_KEPT,
        before: Callable[[], StoredCursor | None] = lambda: None,
    ) -> None:
        self.path = path
        self._source = source
        self._note = json.dumps({"cursors_of": source, "form": FORM_VERSION})
        self._entries_kept = max(1, entries_kept)
        self._before = before
        self._guard = CursorGuard(source)
        # In an object store a write builds on what was read: it is refused if that has changed.
        self._was_read: tuple[int, dict[str, Any] | None] | None = None

    def read(self) -> StoredCursor | None:
        """Raises CursorError: the table is damaged, of a newer form, or another source's."""
        version, newest = self._newest()
        self._was_read = (version, newest) if is_object(self.path) else None
        cursor = self._guard.checked(None if newest is None else self._entry(newest).cursor)
        return self._before() if cursor is None else cursor

    def write(
        self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False
    ) -> None:
        self._guard.check_source(cursor)
        before, newest = (None if replace else self._was_read) or self._newest()
        self._was_read = None
        latest = None if newest is None else self._entry(newest).cursor
        self._guard.check_write(cursor, latest, replace=replace)
        row = {
            "entry": 1 if newest is None else newest["entry"] + 1,
            "at_us": now_us(),
            "batch_number": cursor.batch_number,
            "epoch": cursor.epoch,
            "journal": cursor.journal,
            "offset": cursor.offset,
            "gtid_set": cursor.gtid_set,
            "run_id": str(metadata.get("run_id", "")),
            "metadata": json.dumps(metadata, default=str),
            "cursor": json.dumps(cursor_document(cursor)),
        }
        is_rewrite = row["entry"] % REWRITE_EVERY == 0
        self._commit(row, before, is_rewrite=is_rewrite)
        self._wait_for_disk(after=before)
        self._guard.saw(cursor)
        if is_rewrite:
            self._clean_up()

    def _newest(self) -> tuple[int, dict[str, Any] | None]:
        """The table's version, and its row with the highest number. -1 and None without any."""
        log = self.path / LOG_FOLDER
        version = log_files(log, start=max(0, last_checkpoint(self.path)))[0]
        try:
            lines = read_commit_lines(self.path, version) if version >= 0 else None
            actions = list(read_actions(lines or [], commit_file(self.path, version)))
            note = [action.get("commitInfo", {}).get("userMetadata") for action in actions[:1]]
            files = [action["add"]["path"] for action in actions if "add" in action]
            if version and note == [self._note] and len(files) == 1:
                rows = read_parquet(self.path / files[0]).to_pylist()
                return version, max(rows, key=lambda row: int(row["entry"]))
        except (LakeStateError, KeyError, ValueError, OSError, pa.ArrowException) as error:
            raise self._damaged(error) from None
        state = self._state()
        rows = [] if state is None else self._rows(state, 1)
        return -1 if state is None else state.version, rows[0] if rows else None

    def _commit(self, row: dict[str, Any], before: int, *, is_rewrite: bool) -> None:
        """Append a row; create the table with it, or rewrite the table with the newest rows."""
        rows, actions, mode = [row], list[dict[str, Any]](), "Append"
        if before < 0:
            actions = self._new_table()
        elif is_rewrite:
            state, mode = self._state(), "Overwrite"
            if state is None or state.version != before:
                raise self._taken(before)
            rows = [*reversed(self._rows(state, self._entries_kept - 1)), row]
            actions = [removed(add) for add in state.adds.values()]
        storage_of(self.path).make_folder(self.path)
        table = pa.Table.from_pylist(rows, schema=_SCHEMA)
        types = {field.name: field.type for field in _SCHEMA}
        for add in write_data_files(self.path, [table], data_layout(types, properties={})):
            actions.append({"add": add})
        storage_of(self.path).make_durable(self.path)  # K21: the file's name before the commit's
        try:
            put_commit(self.path, before + 1, actions, "WRITE", {"mode": mode}, note=self._note)
        except VersionTakenError:
            raise self._taken(before) from None

    def _new_table(self) -> list[dict[str, Any]]:
        fields = [
            {
                "name": field.name,
                "type": "string" if pa.types.is_string(field.type) else "long",
                "nullable": False,
                "metadata": {},
            }
            for field in _SCHEMA
        ]
        description = _DESCRIPTION.format(form=FORM_VERSION)
        metadata = new_metadata(fields, {}) | {"name": self._source, "description": description}
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        return [{"protocol": protocol}, {"metaData": metadata}]

    def _taken(self, before: int) -> CursorError:
        now = log_files(self.path / LOG_FOLDER)[0]
        return moved_meanwhile(f"version {before} of {self.path}", f"version {now}")

    def history(self, limit: int) -> list[CursorEntry]:
        state = self._state()
        return [] if state is None else [self._entry(row) for row in self._rows(state, limit)]

    def _wait_for_disk(self, *, after: int) -> None:
        if is_object(self.path):
            return
        commits = Commits(self.path, after, log_files(self.path / LOG_FOLDER)[0])
        for error in make_durable({self._source: commits}, lake=self.path.parent).values():
            raise CursorError(
                "the cursor did not reach the disk",
                got=error.got,
                next_step="check the lake's disk, then start the run again",
            )

    def _state(self) -> TableState | None:
        try:
            state = table_state(self.path)
            if state is None and log_files(self.path / LOG_FOLDER)[0] >= 0:
                raise log_gap(self.path, None)
        except (LakeStateError, OSError) as error:
            raise self._damaged(error) from None
        if state is None:
            return None
        description = state.metadata.get("description")
        if description != _DESCRIPTION.format(form=FORM_VERSION):
            raise CursorError(
                f"the cursors in {self.path} were written by another version of this program",
                expected=_DESCRIPTION.format(form=FORM_VERSION),
                got=description or "no description",
                next_step="use the version of the program that wrote them",
            )
        if (name := state.metadata.get("name")) != self._source:
            raise of_another_source(self._source, name)
        return state

    def _rows(self, state: TableState, limit: int) -> list[dict[str, Any]]:
        if limit < 1:
            return []
        try:
            # Only the newest rows' texts are needed: the numbers are read first, without the texts.
            files = [self.path / unquote(add["path"]) for add in state.adds.values()]
            numbers = {file: _numbers(file) for file in files}
            newest = sorted(number for file_numbers in numbers.values() for number in file_numbers)[
                -limit:
            ]
            if not newest:
                return []
            tables = [
                read_parquet(file) for file in files if max(numbers[file], default=0) >= newest[0]
            ]
            rows = pa.concat_tables(tables, promote_options="permissive").to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(error) from None
        return sorted(rows, key=lambda row: -row["entry"])[:limit]

    def _entry(self, row: dict[str, Any]) -> CursorEntry:
        where = f"{self.path}, entry {row['entry']}"
        cursor = parse_cursor(row["cursor"], where=where, next_step=_NEXT_STEP)
        try:
            metadata = json.loads(row["metadata"])
        except ValueError as error:
            raise self._damaged(ValueError(f"entry {row['entry']}: {error}")) from None
        return CursorEntry(
            cursor=cursor, at_us=row["at_us"], where=where, run_id=row["run_id"], metadata=metadata
        )

    def _damaged(self, error: Exception) -> CdcError:
        """CursorError; or what the machine refuses, which is no damage."""
        if is_refused_by_machine(error):
            return refused(error, self.path)
        return CursorError(
            f"the table of cursors in {self.path} is damaged",
            expected="a Delta table with the columns of a cursor",
            got=said_by(error)[:500],
            next_step=_NEXT_STEP,
        )

    def _clean_up(self) -> None:
        """A failure only costs requests and disk space: the next rewrite tries again."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        options = delta_options(self.path) if is_object(self.path) else None
        with suppress(DeltaError, OSError):
            table = DeltaTable(str(self.path), storage_options=options)
            table.create_checkpoint()
            table.vacuum(dry_run=False)


def _numbers(file: Path) -> list[int]:
    numbers: list[int] = read_parquet(file, columns=["entry"]).column("entry").to_pylist()
    return numbers
