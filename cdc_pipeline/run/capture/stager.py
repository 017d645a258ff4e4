"""Collect a batch's actions, from its first staged row to its record (K2).

Rules:
- If a step fails halfway, the batch is in doubt: this run must not record any of it.
- A changelog's transactions have their GTID as name, else ``journal:offset`` of the first event. A
  change names the transaction that makes it effective (K1): for rows of a prepared XA transaction
  XA COMMIT. GTIDs are read from the present slices, and only if a changelog needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.events.gtid import gtid_texts
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.binlog.seq_columns import transactions
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.lake.records import Note
from cdc_pipeline.schema.evolution.statement_context import TableChange
from cdc_pipeline.schema.evolution.steps import DdlDecision
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.sink.replace.content import carried_content
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.quarantine import BadRows
from cdc_pipeline.targets.targets import Targets, shaped


@dataclass(frozen=True, slots=True)
class Collected:
    """A batch to be recorded; `staged`: None if it touches no target."""

    staged: StagedBatch | None
    created: frozenset[str]
    ddl: tuple[DdlDecision, ...]
    notes: tuple[Note, ...]


class Stager:
    """`staged`: None if the batch has nothing; `is_in_doubt`: a step failed halfway."""

    def __init__(
        self, *, number: int, sink: Sink, begin: Callable[[int], StagedBatch] | None = None
    ) -> None:
        self.number = number
        self.names = TransactionNames()
        self._sink = sink
        self._begin = begin or sink.begin
        self.staged: StagedBatch | None = None
        self.is_in_doubt = False
        self._created: set[str] = set()
        self._ddl: list[DdlDecision] = []
        self._notes: list[Note] = []

    # -- the batch at work -------------------------------------------------------------------------

    def batch(self) -> StagedBatch:
        if self.staged is None:
            self.staged = self._begin(self.number)
        return self.staged

    @property
    def has_work(self) -> bool:
        return self.staged is not None and self.staged.has_work

    @contextmanager
    def together(self) -> Iterator[None]:
        """Steps that count together: if one fails, nothing more is recorded in this run."""
        before, self.is_in_doubt = self.is_in_doubt, True
        yield
        self.is_in_doubt = before

    def collect(self) -> Collected:
        """Return what was collected, and start from scratch."""
        collected = Collected(
            self.staged, frozenset(self._created), tuple(self._ddl), tuple(self._notes)
        )
        self.staged, self._created, self._ddl, self._notes = None, set(), [], []
        return collected

    # -- rows --------------------------------------------------------------------------------------

    def stage(
        self,
        targets: Targets,
        following: Sequence[Target],
        rows: DecodedRows,
        *,
        open_transaction: bool,
    ) -> None:
        """`open_transaction`: it is not known yet whether the transaction commits."""
        with self.together():
            for target in following:
                if target.is_new and target.name not in self._created:
                    self.create(target)
                named = (
                    self.names.of_rows(rows.seq)
                    if MODES[target.spec.mode].rows_are_changes
                    else None
                )
                self.batch().add(
                    shaped(targets, rows, target),
                    target,
                    open_transaction=open_transaction,
                    transactions=named,
                )

    def quarantine(self, bad: Sequence[BadRows], *, open_transaction: bool) -> None:
        with self.together():
            for rows in bad:
                self.batch().quarantine(rows.table, rows.entries, open_transaction=open_transaction)

    # -- an open transaction -----------------------------------------------------------------------

    def undo_open(self, undone: NDArray[np.int64]) -> None:
        if self.staged is not None:
            self.staged.undo_open(undone)

    def close_open(self) -> None:
        """Count the rows of the open transaction: it was committed at the source."""
        if self.staged is not None:
            self.staged.close_open()

    def drop_open(self, target: str | None = None) -> None:
        """An open transaction never counts; of one target, or of all."""
        if self.staged is not None:
            self.staged.drop_open(target)

    # -- statements and decisions ------------------------------------------------------------------

    def create(self, target: Target) -> None:
        self._created.add(target.name)
        self.batch().create(target)

    def change(self, target: Target, change: TableChange) -> None:
        before = change.before or change.known
        self.batch().change(target, before.target_columns, change.steps)

    def carry(self, target: Target) -> None:
        """Replace this target's rows by those of another target (K28)."""
        carried = target.carried
        assert carried is not None
        with self.together():
            content = carried_content(self._sink.paths, self._sink.last_cut(), carried)
            self._created.add(target.name)
            self.batch().replace(target, content, before=carried.columns, steps=carried.steps)

    def decided(self, decision: DdlDecision) -> None:
        self._ddl.append(decision)

    def note(self, note: Note) -> None:
        self._notes.append(note)


class TransactionNames:
    def __init__(self) -> None:
        self._slices: Sequence[EventSlice] = ()
        self._names_known: dict[tuple[int, int], str] | None = None
        self._open: dict[tuple[int, int], str] = {}
        self._journals: dict[int, str] = {}

    def coming(self, slices: Sequence[EventSlice]) -> None:
        """Use these slices for the changes that follow."""
        self._slices, self._names_known = slices, None
        for piece in slices:
            self._journals[journal_number(piece.chunk.journal)] = piece.chunk.journal

    def opened(self, journal: str, tx_offset: int, gtid: str) -> None:
        self._open = {(journal_number(journal), tx_offset): gtid} if gtid else {}

    def of_rows(self, seq: pa.Array) -> pa.Array:
        """Names of the transactions of n changes: strings (n,)."""
        numbers, offsets = transactions(seq)
        places, which = np.unique(np.stack([numbers, offsets], axis=1), axis=0, return_inverse=True)
        known = self._known()
        names = [
            known.get((number, at)) or f"{self._journals[number]}:{at}"
            for number, at in places.tolist()
        ]
        return pa.array(names, pa.string()).take(pa.array(which.reshape(-1)))

    def _known(self) -> dict[tuple[int, int], str]:
        if self._names_known is None:
            self._names_known = dict(self._open)
            for piece in self._slices:
                number = journal_number(piece.chunk.journal)
                texts = gtid_texts(piece.chunk, piece.first, piece.stop)
                self._names_known.update(((number, offset), text) for offset, text in texts.items())
        return self._names_known
