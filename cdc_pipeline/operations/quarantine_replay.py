"""Replay or discard rows of the quarantine, for a person.

Rules:
- A replay is a batch of its own, numbered like all others; the cursor does not move. Its record
  names the rows that it settles, so that each is settled once, even after a crash (K2).
- Rows are judged by today's policies and columns. One that still cannot be applied stays, with the
  reason.
- *Newer wins.* If the table has a newer version of a row, that stays: the MERGE's guard compares
  `seq`. So an update without all columns never takes its turn again: the newer row lacks it. If
  rows have left the table since, or may by a filter, or a statement changed it, the key may be
  among them, and a replay would restore it: that is refused unless a person confirms that it is
  not. A deleted row of `soft_delete` still exists, and guards itself.
- history and changelog record changes in order: an old one has no place there any more (K18).
- A suspended table (K4) is caught up first, each of its targets.
- Not while a recorded batch is unfinished.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cdc_pipeline.binlog.decoded import UPDATE, DecodedRows, joined
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, ConfigError
from cdc_pipeline.lake.quarantine import Entry, read_entries
from cdc_pipeline.lake.records import Cut, Note, QuarantineMark
from cdc_pipeline.lake.suspensions import snapshot_command
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.admin_batch import admin_batch
from cdc_pipeline.run.decode.decoding import lacks_values
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.confirmed import accepted, table_policy
from cdc_pipeline.targets.table_filter import tables_named
from cdc_pipeline.targets.targets import Targets, shaped, targets_at
from cdc_pipeline.text.table_names import split_table_name


@dataclass
class SettleResult:
    """`done`: ids that were replayed or discarded; `left`: why each of the others stays."""

    done: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    batch_number: int | None = None


def entries_of(
    config: PipelineConfig,
    *,
    tables: Collection[str] = (),
    ids: Collection[str] = (),
    only_open: bool = True,
) -> list[Entry]:
    """Oldest first; ConfigError: an id does not exist, LakeStateError: a file is damaged."""
    sink = build_sink(config)
    cut, tables = sink.last_cut(), tables_named(config, tables)
    return [] if cut is None else _selected_entries(sink, cut, tables, ids, only_open=only_open)


def _selected_entries(
    sink: Sink, cut: Cut, tables: Collection[str], ids: Collection[str], *, only_open: bool
) -> list[Entry]:
    entries = list(
        read_entries(sink.paths, before=cut.batch_number + 1, tables=tables, only_open=only_open)
    )
    missing = set(ids) - {entry.id for entry in entries}
    if missing:
        raise ConfigError(
            f"no such row in quarantine: {', '.join(sorted(missing))}",
            expected="ids of rows that wait in quarantine",
            next_step=f"run `cdc-pipeline quarantine list {cut.source} --all`: the rows may "
            "have been replayed or discarded already",
        )
    return [entry for entry in entries if not ids or entry.id in ids]


def settle(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    what: Literal["replayed", "discarded"],
    who: str,
    why: str = "",
    tables: Collection[str] = (),
    ids: Collection[str] = (),
    even_if_deleted: bool = False,
    run_id: str = "",
) -> SettleResult:
    """`tables`, `ids`: () for all. `even_if_deleted`: rows may have left the tables since; the
    person knows that these are not among them. Raises LockError; ConfigError: an id does not exist;
    LakeStateError: as `admin_batch`; TargetSuspendedError: the batch left a table behind, whose
    rows stay; SinkError: a merge failed; the record stays and the next run finishes it.
    """
    sink = build_sink(config)
    with admin_batch(
        sink, cursors=cursors, doing="replay or discard the rows", run_id=run_id
    ) as batch:
        cursor, cut = batch.cursor, batch.last_cut()
        tables = tables_named(config, tables)
        entries = _selected_entries(sink, cut, tables, ids, only_open=True)
        settled = SettleResult()
        targets = targets_at(config, cut, cursor)
        if what == "discarded":
            settled.done = [entry.id for entry in entries]
        else:
            for table in dict.fromkeys(entry.table for entry in entries):
                replay = _Replay(cut, targets, table, even_if_deleted=even_if_deleted)
                replay.take([entry for entry in entries if entry.table == table], settled)
                targets = replay.targets
                for found, rows in replay.staged:
                    for target in found:
                        batch.rows.add(shaped(targets, rows, target), target)
        if not settled.done:
            sink.discard_unrecorded()
            return settled
        done = set(settled.done)
        marks = tuple(
            entry.settled(what, who=who, why=why) for entry in entries if entry.id in done
        )
        batch.publish(kind="replay", notes=_notes(marks, what, who, why), marks=marks)
        settled.batch_number = batch.number
        return settled


def _notes(marks: Sequence[QuarantineMark], what: str, who: str, why: str) -> tuple[Note, ...]:
    reason = f": {why}" if why else ""
    tables = dict.fromkeys(mark.table for mark in marks)
    return tuple(
        Note(
            kind=f"quarantine_{what}",
            text=f"{sum(mark.table == table for mark in marks)} rows in quarantine were {what} "
            f"by {who}{reason}",
            table=table,
        )
        for table in tables
    )


class _Replay:
    """Judged open rows of one source table; `staged`: what can be applied, in order."""

    def __init__(self, cut: Cut, targets: Targets, table: str, *, even_if_deleted: bool) -> None:
        self.staged: list[tuple[list[Target], DecodedRows]] = []
        self.targets = targets
        self._table = table
        self._refusal = self._refused(cut, even_if_deleted=even_if_deleted)

    def take(self, entries: Sequence[Entry], settled: SettleResult) -> None:
        good: dict[TableSchema, list[tuple[Entry, DecodedRows]]] = {}
        for entry in entries:
            reason, rows = self._judge(entry)
            if rows is None:
                settled.left[entry.id] = reason
            else:
                good.setdefault(rows.schema, []).append((entry, rows))
        for schema, entries_of_schema in good.items():
            rows = joined([rows for _, rows in entries_of_schema])
            try:
                self.targets.masks.check_parked(schema)
                self.targets, following = accepted(self.targets, rows)
            except CdcError as error:
                settled.left.update((entry.id, error.what) for entry, _ in entries_of_schema)
                continue
            self.staged.append(([one for one in following if not one.is_new], rows))
            settled.done += [entry.id for entry, _ in entries_of_schema]

    def _refused(self, cut: Cut, *, even_if_deleted: bool) -> str:
        database, table = split_table_name(self._table)
        following = self.targets.following(database, table)
        modes = {target.spec.mode for target in following}
        ordered = {mode for mode in modes if MODES[mode].keeps_every_change}
        if left := self.targets.left_behind(database, table):
            return f"{', '.join(left)} is suspended and must be caught up first"
        if not following:
            return "the table has no target yet: the first row that can be applied creates it"
        if any(target.spec.sources[self._table].gone for target in following):
            return (
                "the table has been dropped or renamed since: discard the rows, or correct the "
                "values at the source"
            )
        if not all(target.spec.key for target in following if target.spec.mode not in ordered):
            return "the table has no key to identify its rows"
        if ordered:
            return f"its {' and '.join(sorted(ordered))} must receive changes in order"
        count = cut.quarantine.get(self._table)
        gone = count.gone if count is not None else 0
        if gone and not even_if_deleted:
            return (
                f"{gone} rows have left the table since, or may, or statements have changed it: "
                "give --even-if-deleted if these keys are not among them"
            )
        return ""

    def _judge(self, entry: Entry) -> tuple[str, DecodedRows | None]:
        if self._refusal:
            return self._refusal, None
        rows = entry.rows()
        if rows is None:
            return "the event could not be decoded: only its bytes were kept", None
        policy = table_policy(self.targets, rows.schema)
        judged = policy.judge(rows)
        if judged.failing is not None or judged.bad:
            value = judged.failing or judged.bad[0]
            return f"column {rows.schema.column_names[value.column]}: {value.reason}", None
        if lacks_values(rows, policy.takes):
            return entry.what, None
        if not judged.rows.all_present and (judged.rows.op == UPDATE).any():
            command = snapshot_command(self.targets.config.name, self._table)
            return f"its image lacks columns: `{command} --where CONDITION` reads the row", None
        return "", judged.rows
