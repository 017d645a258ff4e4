"""Mirrors whose tables exchange names: each takes over the other's files, in one commit (K28)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.sink.delta.replay import file_name
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.replace.content import carried_content
from cdc_pipeline.sink.target import Carried, Target
from tests.sink.replace.lake import apply, next_number
from tests.support.delta_reader import newest_rows, newest_version
from tests.support.kills import killed_at
from tests.support.sink_values import (
    Change,
    column,
    delete,
    head_of,
    insert,
    table_schema,
    target_of,
    update,
)

A, B = (
    table_schema(f"shop.{name}", [column("id", Kind.INT32), column("n", Kind.INT32)], "id")
    for name in ("a", "b")
)


class Names:
    """A lake of two mirrors, each with the application id of its last replacement."""

    def __init__(self, sink: DeltaSink) -> None:
        self._sink = sink
        self.targets = {schema.full_name: target_of(schema) for schema in (A, B)}

    def change(self, schema: TableSchema, *changes: Change) -> None:
        number = next_number(self._sink)
        apply(self._sink, self.targets[schema.full_name], (schema, changes, 100 * number))

    def carried(self, **moves: str) -> BatchRecord:
        """`b="a"`: the target b takes over the rows of a."""
        cut, number = self._sink.last_cut(), next_number(self._sink)
        assert cut is not None
        batch, targets = self._sink.begin(number), dict(self.targets)
        for to, origin in ((f"shop.{to}", f"shop.{origin}") for to, origin in moves.items()):
            held = self.targets[origin]
            carried = Carried(
                origin, held.state.app_id, cut.tables[origin].table_version, held.spec.columns
            )
            state = self.targets[to].state
            target: Target = replace(self.targets[to], replaces=state.app_id).with_state(
                app_id=f"cdc_pipeline/test/{to}/{number}"
            )
            content = carried_content(self._sink.paths, cut, carried)
            batch.replace(target, content, before=carried.columns)
            targets[to] = replace(target, replaces="")
        self.targets = targets
        return batch.record(head_of(number))

    def folder(self, schema: TableSchema) -> Path:
        return self._sink.paths.table(schema.full_name)

    def rows(self, schema: TableSchema) -> dict[int, int]:
        rows = newest_rows(self.folder(schema), "id", "n")
        values = {row["id"]: row["n"] for row in rows}
        assert len(values) == len(rows)
        return values

    def last_names(self, schema: TableSchema, kind: str) -> set[str]:
        """Of the files that the newest commit adds or removes, with their deletion vectors."""
        folder = self.folder(schema)
        log = folder / "_delta_log" / f"{newest_version(folder):020d}.json"
        actions = map(json.loads, log.read_text().splitlines())
        return {file_name(action[kind]) for action in actions if kind in action}


@pytest.mark.parametrize("killed", ["", "before_replaced", "between_merges"])
def test_k2_k28_rows_that_are_carried_to_another_name_and_back_keep_the_files_that_both_have(
    no_spark: DeltaSink, killed: str
) -> None:
    """Deletion vectors go with their files; a kill before or after a commit changes nothing."""
    sink = no_spark
    with sink.lock():
        names = Names(sink)

        def carry(**moves: str) -> None:
            record = names.carried(**moves)
            if killed:
                with killed_at(killed):
                    sink.finish(record)
            assert sink.finish(record).cursor.suspended == {}
            for schema in (A, B):
                assert not names.last_names(schema, "add") & names.last_names(schema, "remove")

        names.change(A, *(insert(id=n, n=n) for n in range(6)))
        names.change(A, *(insert(id=n, n=n) for n in range(10, 13)))
        names.change(B, insert(id=99, n=99))
        carry(b="a")
        assert names.rows(A) == names.rows(B) == {n: n for n in (*range(6), *range(10, 13))}

        names.change(B, update({"id": 1, "n": 1}, {"id": 1, "n": -1}), delete(id=2, n=2))
        changed = {0: 0, 1: -1, 3: 3, 4: 4, 5: 5, 10: 10, 11: 11, 12: 12}
        assert names.rows(B) == changed
        carry(a="b")
        assert names.rows(A) == names.rows(B) == changed
        assert len(names.last_names(A, "add")) == 2, "the file of 10 to 12 stays"

        names.change(A, delete(id=10, n=10))
        names.change(B, insert(id=50, n=50))
        rows = {A.full_name: names.rows(A), B.full_name: names.rows(B)}
        carry(a="b", b="a")
        assert (names.rows(A), names.rows(B)) == (rows[B.full_name], rows[A.full_name])
        assert (set(rows[A.full_name]), set(rows[B.full_name])) == (
            {0, 1, 3, 4, 5, 11, 12},
            {0, 1, 3, 4, 5, 10, 11, 12, 50},
        )
