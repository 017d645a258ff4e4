"""A changelog that is caught up gets what it lacks, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.modes.mode_columns import SEQ_COLUMN
from tests.sink.apply.test_merge_model import SCHEMA
from tests.sink.modes.test_modes_model import target
from tests.support.delta_reader import newest_rows
from tests.support.sink_values import (
    Change,
    cursor_at,
    decoded,
    head_of,
    insert,
    interval_of,
    seq_of,
)

pytestmark = pytest.mark.spark

LOG = target("changelog", "changelog")


def put(sink: DeltaSink, number: int, changes: list[Change], place: int, **head: str) -> None:
    batch = sink.begin(number)
    if number == 1:
        batch.create(LOG)
    names = pa.array([f"tx-{place + at}" for at in range(len(changes))])
    batch.add(decoded(SCHEMA, changes, first_place=place), LOG, transactions=names)
    cut = sink.finish(
        batch.record(head_of(interval=interval_of(number), cursor_after=cursor_at(number), **head))
    )
    assert not cut.cursor.suspended, cut.notes


def test_k4_a_changelog_takes_no_change_twice_when_it_is_caught_up(
    open_sink: Callable[[str], DeltaSink],
) -> None:
    changes = [insert(**dict.fromkeys(SCHEMA.column_names) | {SCHEMA.key_names[0]: 1})] * 5
    sink = open_sink("lake")
    put(sink, 1, changes[:3], 1)
    put(sink, 2, changes[1:], 2, kind="catch_up")
    put(sink, 3, changes[:1], 9)  # any other batch is appended as it is
    rows = newest_rows(sink.paths.table(LOG.name))
    assert sorted(int(row[SEQ_COLUMN]) for row in rows) == [
        seq_of(place, after=True) for place in (1, 2, 3, 4, 5, 9)
    ]
