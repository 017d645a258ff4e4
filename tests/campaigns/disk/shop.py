"""A source of a few batches, and runs of it into a lake: what they leave is known."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.lake.paths import replace_file
from cdc_pipeline.lake.quarantine import SCHEMA as QUARANTINED
from cdc_pipeline.lake.quarantine import read_entries
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.support.delta_reader import read_delta
from tests.support.sink_values import (
    Change,
    column,
    cursor_at,
    decoded,
    delete,
    head_of,
    insert,
    seq_of,
    table_schema,
    target_of,
    update,
)

SOURCE = "shop"
ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
PEOPLE = table_schema("shop.people", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
_XID = "'x1','',1"

# What each batch changes; batch 2 also parks an XA transaction, batch 3 has a row for the
# quarantine.
BATCHES: tuple[tuple[tuple[Any, list[Change]], ...], ...] = (
    ((ORDERS, [insert(id=i, total=i) for i in range(6)]),),
    ((ORDERS, [update({"id": 1, "total": 1}, {"id": 1, "total": 10})]),
        (PEOPLE, [insert(id=1, total=7)])),
    (
        (ORDERS, [delete(id=2, total=2), insert(id=6, total=6)]),
        (PEOPLE, [update({"id": 1, "total": 7}, {"id": 1, "total": 8})]),
    ),
    ((ORDERS, [update({"id": 3, "total": 3}, {"id": 9, "total": 3})]),),
)  # fmt: skip


@dataclass(frozen=True)
class Content:
    batch: int
    rows: dict[str, list[tuple[int, int]]]
    suspended: tuple[str, ...]
    quarantined: tuple[str, ...]
    parked_rows: int


EXPECTED = Content(
    batch=len(BATCHES),
    rows={
        "shop.orders": [(0, 0), (1, 10), (4, 4), (5, 5), (6, 6), (9, 3)],
        "shop.people": [(1, 8)],
    },
    suspended=(),
    quarantined=("shop.people",),
    parked_rows=1,
)


def sink_on(lake: Path, spark: Any) -> DeltaSink:
    return DeltaSink(source=SOURCE, config=SinkConfig(lake_path=lake), spark=spark)


def run(lake: Path, spark: Any, *, upto: int = len(BATCHES)) -> None:
    """One run: what is recorded is finished, then the batches up to a number follow."""
    sink = sink_on(lake, spark)
    with sink.lock():
        cut, pending = sink.last_cut(), sink.pending_record()
        sink.discard_unrecorded()
        failing = sink.failing_targets(cut) if cut is not None else {}
        if pending is not None:
            given_up = {t.table: failing[t.table] for t in pending.targets if t.table in failing}
            cut = sink.finish(pending, recovered=True, given_up=given_up)
        for error in failing.values():
            raise error
        if cut is not None:
            sink.cleanup(cut)
        sink.discard_parked(cut.cursor if cut is not None else None)
        for number in range(cut.batch_number + 1 if cut is not None else 1, upto + 1):
            replace_file(sink.paths.schema_history, b'{"batch": %d}' % number)
            cut = sink.finish(_recorded(sink, number, cut))
            sink.cleanup(cut)


def _recorded(sink: DeltaSink, number: int, cut: Cut | None) -> BatchRecord:
    parking = sink.parking(epoch=1, open_xa=cut.cursor.open_xa if cut is not None else ())
    if number == 2:
        parking.begin(journal="binlog.000001", offset=4, gtid="")
        parking.add(decoded(PEOPLE, [insert(id=99, total=99)], first_place=900))
        parking.park(_XID, prepared_at_us=1)
    batch = sink.begin(number)
    for place, (schema, changes) in enumerate(BATCHES[number - 1]):
        plan = target_of(schema)
        if cut is None or schema.full_name not in cut.tables:
            batch.create(plan)
        batch.add(decoded(schema, changes, first_place=100 * number + 20 * place), plan)
    if number == 3:
        batch.quarantine("shop.people", _bad_row())
    cursor = cursor_at(number).model_copy(update={"open_xa": parking.durable()})
    return batch.record(head_of(number, cursor_after=cursor))


def _bad_row() -> pa.Table:
    row = dict.fromkeys(QUARANTINED.names, "x")
    row |= {
        "_op": 1,
        "_seq": Decimal(seq_of(350)),
        "ts_us": 1,
        "offset": 4,
        "row": b"",
        "raw": b"",
        "table": "shop.people",
    }
    return pa.Table.from_pylist([row], schema=QUARANTINED)


def content(lake: Path, spark: Any) -> Content:
    """What the newest cut of a lake says, as a reader of it finds it."""
    sink = sink_on(lake, spark)
    cut = sink.last_cut()
    if cut is None:
        return Content(0, {}, (), (), 0)
    with sink.lock():
        parking = sink.parking(epoch=1, open_xa=cut.cursor.open_xa)
        parked = sum(
            xa.rows
            for entry in cut.cursor.open_xa
            for xa in entry.files
            if parking.schemas(entry.xid)
        )
    rows = {
        name: sorted(
            (row["id"], row["total"])
            for row in read_delta(sink.paths.table(name), table.table_version).rows
        )
        for name, table in cut.tables.items()
    }
    entries = read_entries(sink.paths, before=cut.batch_number + 1)
    return Content(
        batch=cut.batch_number,
        rows=rows,
        suspended=tuple(cut.cursor.suspended),
        quarantined=tuple(entry.table for entry in entries),
        parked_rows=parked,
    )
