"""Cuts made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_pipeline.lake import table_facts
from cdc_pipeline.lake.cut_order import with_order
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut, CutTable
from cdc_pipeline.position.cursor import Suspension, TargetState
from tests.support.sink_values import cursor_at, interval_of

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    return LakePaths(tmp_path / "lake", "shop")


def suspension(*, batch_number: int = 1) -> Suspension:
    return Suspension(
        batch_number=batch_number,
        error="SchemaError",
        what="a column has gone",
        journal="binlog.000001",
        offset=777,
        gtid_set=f"{UUID}:1-3",
        journal_created_s=0,
        epoch=1,
        needs_snapshot=False,
        next_step="",
    )


@pytest.fixture
def put_cut(paths: LakePaths) -> Callable[..., Cut]:
    """`put_cut(number, time_us=..., gtids=..., tables=..., suspended=...)`: a cut in the lake."""
    previous: list[Cut] = []

    def put(
        number: int,
        *,
        time_us: int = -1,
        published_us: int | None = None,
        gtids: str = "",
        tables: dict[str, int] | None = None,
        suspended: dict[str, int] | None = None,
    ) -> Cut:
        tables = {"shop.orders": number} if tables is None else tables
        held = suspended or {}
        targets = {
            name: TargetState(
                table=name,
                app_id=f"app/{name}",
                table_version=tables.get(name, -1),
                applied_batch=held.get(name, number),
                suspended=suspension() if name in held else None,
            )
            for name in {*tables, *held}
        }
        cut = Cut(
            source="shop",
            batch_number=number,
            published_at_us=number * 1_000_000 if published_us is None else published_us,
            source_time_us=time_us,
            interval=interval_of(number),
            cursor=cursor_at(number, targets=targets).model_copy(update={"gtid_set": gtids}),
            tables={name: CutTable(table_version=version) for name, version in tables.items()},
        )
        cut = with_order(cut, previous[-1] if previous else None)
        written = table_facts.put_cut(paths, cut)
        assert written is not None
        previous.append(written)
        return cut

    return put
