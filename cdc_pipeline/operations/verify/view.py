"""Read a source table in views whose place in the log is proved: between two cuts (K17).

    main capture -> cut C0, proved committed -> views, each opened behind C0 -> main capture -> C1

Rules:
- Everything before C0 is proved to be committed before a view is opened, and no view shows anything
  behind C1. If the proof fails, an earlier place (`ProvenView.low`) stands for C0.
- A view at an exact place is followed by a capture that ends there. A view of a table that no batch
  between C0 and C1 changes serves as well: it shows the state of both cuts.
- A DDL of the table between C0 and C1 invalidates the read (`ViewLostError`), and it is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import (
    CdcError,
    ServerSettingError,
    TableChangedError,
    TableReadInterruptedError,
)
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.operations.verify.captures import Captures, SourceState
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.rows.marks import exact_view
from cdc_pipeline.source.rows.table_reader import TableReader
from cdc_pipeline.text.table_names import split_table_name

# An exact view is not available on a MySQL server that is never idle.
_EXACT_TIMEOUT_S: Final = 5.0
_ALWAYS_TIMEOUT_S: Final = 15.0

Exact = Literal["no", "if possible", "always"]


class ViewLostError(CdcError):
    """The table or its columns changed during the read: what was read is invalid."""


class NotFollowedError(CdcError):
    """The target no longer follows the table: it was suspended, dropped or renamed meanwhile."""


class ProvenView:
    """`low`: up to there everything is proved to be committed: the place of `before`, or an earlier
    one; `schema`: the table's columns since `before`; `reader`: makes one. Raises ViewLostError:
    the table was altered since `before`; NotFollowedError: a target no longer follows it.
    """

    def __init__(
        self,
        config: PipelineConfig,
        captures: Captures,
        source_table: str,
        *,
        targets: Sequence[str],
        before: SourceState,
    ) -> None:
        self._captures = captures
        self._source_table = source_table
        self._targets = targets
        self.before = before
        self._check_follows(before)
        with SnapshotSource(config, role="verify") as source:
            self.low = source.proved(before.position)
            self.schema = self._schema(source)
            self.reader = source.reader

    @property
    def is_proved(self) -> bool:
        return self.low == self.before.position

    def begin(self, reader: TableReader, exact: Exact) -> Position | None:
        """Open a view at an exact place and return that place; None if no view was opened. Raises
        TableReadInterruptedError, ServerSettingError: there is none, and `exact` is ``always``.
        If the first cut is proved, None is returned all the same: a view of an unchanged table is
        then exact too.
        """
        if exact == "no":
            return None
        try:
            return exact_view(
                reader,
                timeout_s=_ALWAYS_TIMEOUT_S if exact == "always" else _EXACT_TIMEOUT_S,
                tables=[split_table_name(self._source_table)],
                since=self.before.position,
            )
        except (TableReadInterruptedError, ServerSettingError):
            if exact == "always" and not self.is_proved:
                raise
            return None

    def end(self, place: Position | None) -> tuple[SourceState, bool]:
        """The cut behind the views, and whether the rows are exactly of its moment."""
        if place is None:
            after, exact = self._captures.run(), False
        elif place.order <= self.before.position.order:
            # The view is not behind the cursor, and includes every transaction up to it.
            after = self._captures.source_state()
            exact = after.cut.batch_number == self.before.cut.batch_number
        else:
            after = self._captures.run(place)
            exact = after.position.order == place.order  # another run may have captured further
        return after, exact or self.is_exact(after)

    def check_undisturbed(self, after: SourceState) -> None:
        """Only rows changed between the cuts: else ViewLostError (a DDL), or NotFollowedError."""
        self._check_follows(after)
        for name in self._targets:
            if _essence(self.before.cut, name) != _essence(after.cut, name):
                raise ViewLostError(
                    "DDL changed the table while it was being read",
                    table=name,
                    next_step="run the command again",
                )

    def is_exact(self, after: SourceState) -> bool:
        """Whether the log shows no change of the table between the two cuts."""
        first, last = self.before.cut.batch_number, after.cut.batch_number
        changes = self._captures.changes
        return self.is_proved and all(
            changes.is_quiet(name, after=first, upto=last) for name in self._targets
        )

    def _check_follows(self, at: SourceState) -> None:
        for name in self._targets:
            suspension = at.cut.cursor.suspended.get(name)
            if suspension is not None:
                raise NotFollowedError(
                    f"suspended in the meantime at {suspension.position}: {suspension.cause}",
                    table=name,
                    next_step=suspension.next_step,
                )
            table = at.cut.tables.get(name)
            source = None if table is None else table.spec.sources_of(name).get(self._source_table)
            if source is None or source.gone:
                raise NotFollowedError(
                    f"the source has dropped or renamed {self._source_table} in the meantime",
                    table=name,
                    next_step="run the command again",
                )

    def _schema(self, source: SnapshotSource) -> TableSchema:
        name = split_table_name(self._source_table)
        placed = source.live.catalog(lambda d, t: (d, t) == name, since=self.before.position)
        told = placed.catalog.tables.get(name) if placed is not None else None
        if placed is not None and name in placed.last_ddl:
            raise ViewLostError("the table was altered in the meantime", table=self._source_table)
        if told is None:
            raise ViewLostError(
                "the source does not have this table, or does not show it", table=self._source_table
            )
        return told[0]


@contextmanager
def changes_void_it() -> Iterator[None]:
    try:
        yield
    except TableChangedError as error:
        raise ViewLostError(
            error.what, table=error.table, got=error.got, next_step=error.next_step
        ) from error


def _essence(cut: Cut, name: str) -> tuple[object, ...]:
    table = cut.tables[name]
    app_id = cut.cursor.targets[name].app_id
    return (
        app_id,
        table.spec.columns,
        table.spec.key,
        table.spec.sources,
        table.spec.shape,
        table.spec.mode,
    )
