"""What of a target's old table stays where a table with other masks takes its place (K14)."""

from __future__ import annotations

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.modes import Mode
from cdc_pipeline.errors import SnapshotError
from cdc_pipeline.lake.records import CutTable, RecordedContent
from cdc_pipeline.lake.suspensions import suspension
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.target_spec import RecordedShape, RecordedSource, TargetSpec
from cdc_pipeline.schema.types import TargetColumn, target_columns
from cdc_pipeline.sink.replace.content import Replacement, replacement
from tests.support.sink_values import column, table_schema, target_of

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("mail", Kind.TEXT)], "id")


def replaced(mode: Mode, *, before: str, after: str = "truncate:3") -> Replacement:
    def spec(mask: str) -> TargetSpec:
        shape = RecordedShape(masks={"mail": mask})
        source = RecordedSource(columns=target_columns(ORDERS), key=("id",))
        update = {"mode": mode, "shape": shape, "sources": {"shop.orders": source}}
        return target_of(ORDERS).spec.model_copy(update=update)

    kept = TargetColumn(name="gone", delta_type="string")  # the source has dropped it
    old = spec(before).model_copy(update={"columns": (*spec(before).columns, kept)})
    target = target_of(ORDERS).with_spec(**dict(spec(after)))
    error = SnapshotError("masks")
    suspended = suspension(error, batch_number=1, at=Position("binlog.000001", 4), epoch=1)
    suspended = suspended.model_copy(update={"past_given_up": True})
    return replacement(
        target,
        RecordedContent(path="x", version=0, app_id="new", files=1),
        before=CutTable(table_version=1, spec=old),
        state=target.state.model_copy(update={"table_version": 1, "suspended": suspended}),
    )


@pytest.mark.parametrize("mode", ["soft_delete", "history", "changelog"])
def test_k14_rows_with_other_masks_stay_in_no_mode_and_go_by_a_persons_word(mode: Mode) -> None:
    assert replaced(mode, before="truncate:3").content.keeps_rows
    found = replaced(mode, before="truncate:9")
    assert not found.content.keeps_rows
    assert not found.content.carried
    assert any("had other masks" in note.text for note in found.notes)


def test_k14_a_mirror_carries_no_column_that_the_source_has_dropped_over_to_other_masks() -> None:
    assert replaced("mirror", before="truncate:3").content.carried == ("gone",)
    found = replaced("mirror", before="truncate:9")
    assert not found.content.carried
    assert any("were removed: gone" in note.text for note in found.notes)
