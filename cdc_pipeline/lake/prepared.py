"""Parked rows of prepared XA transactions (K8).

    XA PREPARE -> park -> ... transactions, batches, runs ... -> XA COMMIT -> rows under its seq
                                                              -> XA ROLLBACK -> dropped

Rules:
- Every prepared transaction is known until it ends, with or without rows of captured tables.
  Otherwise an XA COMMIT whose prepare was never seen could not be distinguished from one that has
  nothing to apply.
- *Durable before it is referenced.* Rows wait in memory (at most `MEMORY_BYTES_MAX` in all, then in
  files). `durable` writes all that are still open: data and fsync under a temporary name, then the
  final name, then its folders. It comes before the record (K2) or, if there is no batch, before the
  cursor that passes the prepare. A prepare and its commit within one batch never touch the disk
  unless they are large.
- *Location.* ``_cdc/<source>/xa/<epoch>-<journal>-<offset>/<number>-<sha256, first 16>.arrow``,
  journal and offset those of the prepared transaction's first event; one file per table and schema
  version. A prepare that is read again uses the same folder; the checksum in the name keeps a
  second reading, which may split rows into other batches, from changing a file that a cursor refers
  to.
- *Removal.* Files that end with an XA COMMIT or XA ROLLBACK are removed when the cut that contains
  it is published. They stay when only the cursor has moved past it, because a lost cursor is
  rebuilt from the last cut, which still refers to them. At a run's start, under the lock, all files
  are removed that neither the last cut nor the cursor refers to (a recorded batch is finished
  before, and is then the last cut).

State after a kill at each fault point, and how the next run continues:
- while rows wait in memory, or a file has its temporary name, or its final name before the record:
  nothing refers to them; they are removed, and the prepare is read again, because the cursor is
  still before it.
- after the record: the batch is finished from its own files; its cursor refers to durable parked
  files.
- after the cut, before the cursor, and before the ack: the cursor is moved to the cut, which refers
  to the same files; files of the cut's XA COMMITs are no longer referred to and are removed at that
  start.
- only the cursor moved past a prepare, then lost: the last cut is before the prepare, which is read
  again.
- only the cursor moved past an XA ROLLBACK, then lost: the last cut still refers to the rows, which
  still exist.
- between the staging of an XA COMMIT's rows and the record: the staged rows are garbage, the parked
  files are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.binlog.seq_columns import with_transaction
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import StagingError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.paths import LakePaths, folder_name
from cdc_pipeline.lake.prepared_rows import Spool, read_file, read_schema
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.lake.storage.storage import TEMPORARY_PREFIX, refused, storage_of
from cdc_pipeline.position.cursor import CursorState, OpenXa, XaFile, oldest_begin
from cdc_pipeline.position.position import Position

MEMORY_BYTES_MAX: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class CommitPlace:
    """The transaction that makes rows effective: epoch, journal, first offset, commit time (K1)."""

    epoch: int
    journal: str
    tx_offset: int
    commit_ts_us: int

    def on(self, rows: DecodedRows) -> DecodedRows:
        number = journal_number(self.journal)
        return replace(
            rows,
            seq=with_transaction(
                rows.seq, epoch=self.epoch, journal=number, tx_offset=self.tx_offset
            ),
            commit_ts_us=np.full(len(rows), self.commit_ts_us, np.int64),
        )


@dataclass
class _Parked:
    """A transaction that is open or prepared; in spools until it is in files."""

    entry: OpenXa
    folder: Path
    spools: dict[TableSchema, Spool] = field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        return sum(spool.memory_bytes for spool in self.spools.values())


class XaParking:
    """The prepared transactions of a source. Not thread-safe. `open_xa`: those that the cursor
    holds; `check_lock` raises if the source is no longer locked (K16).
    """

    def __init__(
        self,
        paths: LakePaths,
        *,
        epoch: int,
        open_xa: Iterable[OpenXa] = (),
        check_lock: Callable[[], None],
        memory_bytes_max: int = MEMORY_BYTES_MAX,
    ) -> None:
        self._paths = paths
        self._epoch = epoch
        self._check_lock = check_lock
        self._memory_bytes_max = memory_bytes_max
        self._memory_bytes = 0
        self._open = {entry.xid: _Parked(entry, paths.xa) for entry in open_xa}
        self._pieces: _Parked | None = None
        self._ended: list[XaFile] = []
        self._temporaries = 0

    def __contains__(self, xid: str) -> bool:
        return xid in self._open

    def __len__(self) -> int:
        return len(self._open)

    # -- parking -----------------------------------------------------------------------------------

    @property
    def has_pieces(self) -> bool:
        return self._pieces is not None

    def begin(self, *, journal: str, offset: int, gtid: str) -> None:
        """Begin an XA transaction at `offset`.

        Rows come by `add` until `park`, `drop_pieces` or `pieces`.
        """
        assert self._pieces is None
        folder = self._paths.xa / f"{self._epoch}-{folder_name(journal)}-{offset}"
        entry = OpenXa(xid="", gtid=gtid, begin=Position(journal, offset), epoch=self._epoch)
        self._pieces = _Parked(entry, folder)

    def add(self, rows: DecodedRows) -> None:
        """Add rows of the transaction under way. Raises SinkError: the lake's file system is
        full.
        """
        assert self._pieces is not None
        spool = self._pieces.spools.get(rows.schema)
        if spool is None:
            spool = self._pieces.spools[rows.schema] = Spool(rows.schema)
        before = spool.memory_bytes
        with _disk(self._paths.xa):
            spool.add(rows)
            self._memory_bytes += spool.memory_bytes - before
            if self._memory_bytes > self._memory_bytes_max:
                self._spill()

    def undo(self, undone: NDArray[np.int64]) -> None:
        """Drop rows of the transaction under way, undone by ROLLBACK TO (see
        `Savepoints.undone`).
        """
        parked = self._pieces
        if parked is None or not len(undone):
            return
        self._memory_bytes -= parked.memory_bytes
        with _disk(self._paths.xa):
            for schema, spool in list(parked.spools.items()):
                kept = spool.keep_done(undone)
                spool.discard()
                parked.spools[schema] = kept
                if not kept.rows:
                    del parked.spools[schema]
        self._memory_bytes += parked.memory_bytes

    def park(self, xid: str, *, prepared_at_us: int) -> None:
        """Park the transaction under way, which is prepared under `xid`."""
        assert self._pieces is not None
        parked, self._pieces = self._pieces, None
        parked.entry = parked.entry.model_copy(
            update={"xid": xid, "prepared_at_us": prepared_at_us}
        )
        self._open[xid] = parked

    def pieces(self) -> Iterator[DecodedRows]:
        """Yield the rows of the transaction under way; none can be added afterwards."""
        if self._pieces is not None:
            for spool in self._pieces.spools.values():
                yield from spool.read()

    def drop_pieces(self) -> None:
        """Drop its rows: it was rolled back, never ended, or `pieces` took them."""
        parked, self._pieces = self._pieces, None
        if parked is not None:
            self._discard(parked)

    def begin_of_oldest(self) -> Position | None:
        """The first event of the oldest open prepared transaction of this epoch, or None."""
        return oldest_begin((parked.entry for parked in self._open.values()), epoch=self._epoch)

    def holds_rows_of(self, source: str) -> bool:
        """Whether a prepared transaction has rows of a source table (``schema.table``)."""
        return any(
            source in {file.table for file in parked.entry.files}
            or source in {schema.full_name for schema in parked.spools}
            for parked in self._open.values()
        )

    def durable(self) -> tuple[OpenXa, ...]:
        """Make all prepared transactions durable; return them for a record or a cursor. Raises
        SinkError: the lake's file system is full.
        """
        with _disk(self._paths.xa):
            for parked in self._open.values():
                self._make_durable(parked)
        return tuple(parked.entry for parked in self._open.values())

    def begin_of(self, xid: str) -> Position:
        return self._open[xid].entry.begin

    def rows_of(self, xid: str) -> dict[str, int]:
        """How many rows of a prepared transaction wait, by source table."""
        rows: Counter[str] = Counter()
        parked = self._open[xid]
        for file in parked.entry.files:
            rows[file.table] += file.rows
        for schema, spool in parked.spools.items():
            rows[schema.full_name] += spool.rows
        return dict(rows)

    # -- ending ------------------------------------------------------------------------------------

    def schemas(self, xid: str) -> tuple[TableSchema, ...]:
        """The tables of a prepared transaction, after checking its files. Each is at the schema
        version of its rows. Raises StagingError: a file is missing or damaged.
        """
        parked = self._open[xid]
        checked = tuple(
            _checked_schema(self._paths.lake, file, parked.entry) for file in parked.entry.files
        )
        return (*checked, *parked.spools)

    def rows(self, xid: str) -> Iterator[DecodedRows]:
        """Yield rows that XA COMMIT makes effective (`CommitPlace.on`), in bounded pieces."""
        parked = self._open[xid]
        for file in parked.entry.files:
            yield from read_file(self._paths.lake / file.path)
        for spool in parked.spools.values():
            yield from spool.read()

    def end(self, xid: str) -> None:
        """End a prepared transaction that was committed (its rows are staged) or rolled back.

        Its files stay until `published`.
        """
        parked = self._open.pop(xid)
        self._ended += parked.entry.files
        self._discard(parked)

    def published(self) -> None:
        """Remove the files of every `end` so far: a cut that contains them was published."""
        ended, self._ended = self._ended, []
        for file in ended:
            path = self._paths.lake / file.path
            path.unlink(missing_ok=True)
            _remove_empty(path.parent)

    # -- files -------------------------------------------------------------------------------------

    def _spill(self) -> None:
        """Free memory: prepared transactions become durable, the open one moves to temporary
        files.
        """
        for parked in self._open.values():
            self._make_durable(parked)
        if self._pieces is not None:
            self._memory_bytes -= self._pieces.memory_bytes
            for spool in self._pieces.spools.values():
                spool.spill(self._temporary(self._pieces))

    def _make_durable(self, parked: _Parked) -> None:
        if not parked.spools:
            return
        self._memory_bytes -= parked.memory_bytes
        files = []
        for number, (schema, spool) in enumerate(parked.spools.items()):
            spool.spill(self._temporary(parked))
            sha256 = spool.finish()
            reach("parking")
            self._check_lock()
            path = parked.folder / f"{number:04d}-{sha256[:16]}.arrow"
            assert spool.path is not None
            storage_of(path).move(spool.path, path)
            files.append(
                XaFile(
                    path=path.relative_to(self._paths.lake).as_posix(),
                    table=schema.full_name,
                    size_bytes=spool.size_bytes,
                    rows=spool.rows,
                    sha256=sha256,
                )
            )
        storage_of(parked.folder).make_durable(parked.folder, self._paths.xa, self._paths.state)
        parked.spools.clear()
        parked.entry = parked.entry.model_copy(update={"files": tuple(files)})

    def _temporary(self, parked: _Parked) -> Path:
        """A new name in the transaction's folder; the start removed those of earlier runs."""
        self._temporaries += 1
        return parked.folder / storage_of(parked.folder).unique(
            f"{TEMPORARY_PREFIX}{self._temporaries}"
        )

    def _discard(self, parked: _Parked) -> None:
        self._memory_bytes -= parked.memory_bytes
        for spool in parked.spools.values():
            spool.discard()
        if parked.spools:
            parked.spools.clear()
            _remove_empty(parked.folder)


def remove_unreferenced(
    paths: LakePaths,
    cursors: Iterable[CursorState | None],
    *,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Remove parked files that no cursor refers to; return their number. Needs the lock. `check`:
    called once the files are listed. A process that has lost the lock by then must not remove
    what the new holder has parked.
    """
    kept = {
        file.path
        for cursor in cursors
        if cursor is not None
        for xa in cursor.open_xa
        for file in xa.files
    }
    parked = [paths.xa / name for name in storage_of(paths.xa).names(paths.xa)]
    folders = {folder: list(folder.iterdir()) for folder in parked}
    check()
    removed = 0
    for folder, files in folders.items():
        for path in files:
            if path.relative_to(paths.lake).as_posix() not in kept:
                path.unlink()
                removed += 1
        _remove_empty(folder)
    return removed


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _checked_schema(lake: Path, file: XaFile, entry: OpenXa) -> TableSchema:
    what = f"parked rows of the prepared XA transaction {entry.xid} are"
    next_step = (
        "restore this file from a backup of the lake; or move the cursor back to before the "
        f"prepare, in {entry.begin.journal} at offset {entry.begin.offset}, while that journal "
        "still exists"
    )
    path = verify(file, lake=lake, table=file.table, what=what, next_step=next_step)
    try:
        return read_schema(path)
    except OSError as error:
        raise StagingError(
            f"{what} missing or damaged: {file.path}",
            table=file.table,
            got=f"{type(error).__name__}: {error.strerror or error}",
            next_step=next_step,
        ) from error


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refused(error, folder) from error
