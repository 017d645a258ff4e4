"""A lake and a side lake in it, filled by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.cuts import is_readable
from cdc_pipeline.sink.replace.content import Replacement, replacement
from cdc_pipeline.sink.spark.sql import table_at
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.sink.target import Target
from tests.support.sink_values import (
    Change,
    cursor_at,
    decoded,
    head_of,
    seq_of,
    target_of,
)

SNAPSHOT_PLACE = 500  # of the rows that a load reads


class Lakes:
    def __init__(self, open_sink: Callable[[str], DeltaSink], name: str = "lake") -> None:
        self._open, self._name, self._loads = open_sink, name, 0
        self.main = open_sink(name)
        self.snapshot_again()

    def snapshot_again(self) -> None:
        self._loads += 1
        self.side = self._open(f"{self._name}/_cdc/shop/operations/{self._loads}")

    def table(self, schema: TableSchema) -> str:
        return table_at(self.main.paths.table(schema.full_name))

    def side_table(self, schema: TableSchema) -> str:
        return table_at(self.side.paths.table(schema.full_name))

    def sql(self, statement: str) -> list[Any]:
        return self.main.spark.session().sql(statement).collect()

    def actions(self, schema: TableSchema, version: int) -> dict[str, list[Any]]:
        file = self.main.paths.table(schema.full_name) / "_delta_log" / f"{version:020d}.json"
        found: dict[str, list[Any]] = {}
        for line in file.read_text().splitlines():
            ((kind, value),) = json.loads(line).items()
            found.setdefault(kind, []).append(value)
        return found


def next_number(sink: DeltaSink) -> int:
    cut = sink.last_cut()
    return 1 if cut is None else cut.batch_number + 1


def side_target(target: Target, load: int = 1) -> Target:
    return target.with_state(app_id=f"{target.state.app_id}/{load}")


def apply(
    sink: DeltaSink,
    target: Target,
    *pieces: tuple[TableSchema, Sequence[Change], int],
    **named: Any,
) -> Cut:
    """A piece is (schema, changes, first place)."""
    number = next_number(sink)
    batch = sink.begin(number)
    cut = sink.last_cut()
    if cut is None or target.name not in cut.tables:
        batch.create(target)
    for schema, changes, place in pieces:
        batch.add(decoded(schema, changes, first_place=place), target)
    return finish(sink, batch, **named)


def finish(sink: DeltaSink, batch: StagedBatch, **named: Any) -> Cut:
    named.setdefault("cursor_after", cursor_at(batch.number))
    return sink.finish(batch.record(head_of(batch.number, **named)))


def replaced(lakes: Lakes, target: Target) -> Replacement:
    cut, side_cut = lakes.main.last_cut(), lakes.side.last_cut()
    assert side_cut is not None
    seq, ts_us = seq_of(SNAPSHOT_PLACE), SNAPSHOT_PLACE * 1_000_000
    content = lakes.side.tables.content_of(
        side_cut, target.name, lake=lakes.main.paths.lake, seq=seq, ts_us=ts_us
    )
    if cut is None or target.name not in cut.tables:
        return replacement(target, content, before=None, state=None)
    return replacement(
        target,
        content,
        before=cut.tables[target.name],
        state=cut.cursor.targets[target.name],
        differs=lakes.main.failing_targets(cut).get(target.name),
        is_readable=is_readable(lakes.main.paths, cut, target.name),
    )


def recorded_swap(lakes: Lakes, *targets: Target) -> BatchRecord:
    """Of the batch that puts the side tables in the place of their targets."""
    made = [replaced(lakes, target) for target in targets]
    number = next_number(lakes.main)
    batch = lakes.main.begin(number)
    for found in made:
        batch.replace(found.target, found.content)
    assert batch.has_work
    notes = tuple(note for found in made for note in found.notes)
    return batch.record(head_of(number, kind="snapshot", notes=notes))


def differences(lakes: Lakes, schema: TableSchema, *, rescued: bool = False) -> list[Any]:
    """Rows that only one of target and side table has, as Spark compares them."""
    # Spark compares no maps.
    listed = "* EXCEPT (_cdc_rescued), map_entries(_cdc_rescued)" if rescued else "*"
    there, loaded = (
        f"SELECT {listed} FROM {table}" for table in (lakes.table(schema), lakes.side_table(schema))
    )
    return lakes.sql(
        f"SELECT * FROM ({there} EXCEPT ALL {loaded}) UNION ALL SELECT * FROM ({loaded} "
        f"EXCEPT ALL {there})"
    )


def target(schema: TableSchema, **named: Any) -> Target:
    return target_of(schema).with_spec(**named)
