"""K25: what a run keeps of its batches has an end."""

from __future__ import annotations

import gc
import weakref

from cdc_pipeline.lake.records import CutTable, Note
from cdc_pipeline.run.capture.summary import ENTRIES_KEPT_MAX, RunSummary
from tests.lake.test_table_facts import cut_of


def test_k25_a_run_keeps_its_latest_cut_alone() -> None:
    done, cuts = RunSummary(), []
    for number in range(1, 51):
        table = CutTable(table_version=number, rows_updated=3, rescued={"c": 1}, rescued_rows=1)
        note = Note(kind="k", text=str(number))
        cut = cut_of(
            number, {"shop.a": table, "shop.b": CutTable(table_version=7)}, notes=(note,) * 30
        )
        cuts.append(weakref.ref(cut))
        done.add(cut)
        del cut
    gc.collect()
    assert [ref() is not None for ref in cuts] == [False] * 49 + [True]
    assert (done.batches, done.rows) == (50, 150)
    assert len(done.notes) == ENTRIES_KEPT_MAX
    assert done.entries_omitted == 500
    tables = done.tables()
    assert (
        tables["shop.a"].rows_updated,
        tables["shop.a"].rescued,
        tables["shop.a"].delta_version,
    ) == (150, {"c": 50}, 50)
    assert tables["shop.b"].rows_updated == 0
    assert done.interval is not None
    assert (
        done.interval.start.offset,
        done.interval.end.offset,
        done.interval.transactions_seen,
    ) == (1, 51, 100)


def test_k25_parts_of_a_run_are_joined_and_tables_stand_as_the_later_part_left_them() -> None:
    early, late = RunSummary(), RunSummary()
    early.add(
        cut_of(
            1,
            {
                "shop.a": CutTable(table_version=1, rows_inserted=2),
                "shop.gone": CutTable(table_version=5),
            },
        )
    )
    late.add(cut_of(2, {"shop.a": CutTable(table_version=2, rows_deleted=1)}))
    for first, second in ((early, late), (late, early)):
        done = RunSummary()
        done.join(first)
        done.join(second)
        assert done.latest is late.latest
        assert done.tables()["shop.a"].model_dump(
            include={"rows_inserted", "rows_deleted", "delta_version"}
        ) == {"rows_inserted": 2, "rows_deleted": 1, "delta_version": 2}
        assert done.tables()["shop.gone"].delta_version == 5
