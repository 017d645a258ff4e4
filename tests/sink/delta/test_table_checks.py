"""What a cut says of its tables against their logs, without Spark: set back, written by others,
another writer's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut, CutTable
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.sink.delta.log import APP_ID_PROPERTY, SOURCE_PROPERTY, TABLE_PROPERTY
from cdc_pipeline.sink.delta.table_checks import check_target
from cdc_pipeline.sink.delta.transactions import STEPS_PER_BATCH, transaction_version
from tests.support.sink_values import cursor_at, interval_of

NAME, APP_ID = "shop.orders", "cdc_pipeline/shop/shop.orders/1"
OF_BATCH_2 = {"cdc_app_id": APP_ID, "cdc_batch": 2}


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    return LakePaths(tmp_path / "lake", "shop")


def write(paths: LakePaths, *, app_id: str = APP_ID, note: dict[str, object] | None = None) -> None:
    """One more commit of the table, which adds no rows; the first one makes it."""
    log = paths.table(NAME) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.iterdir()))
    actions: list[dict[str, object]] = [
        {"commitInfo": {"operation": "WRITE", "userMetadata": json.dumps(note or {})}}
    ]
    if not version:
        fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
        made = {
            "id": "6f1c0b9e-0000-4000-8000-000000000001",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {
                SOURCE_PROPERTY: "shop",
                TABLE_PROPERTY: NAME,
                APP_ID_PROPERTY: app_id,
            },
            "createdTime": 0,
        }
        actions += [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": made},
        ]
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def cut_at(version: int) -> Cut:
    state = TargetState(table=NAME, app_id=APP_ID, table_version=version, applied_batch=1)
    return Cut(
        source="shop",
        batch_number=1,
        interval=interval_of(1),
        cursor=cursor_at(1, targets={NAME: state}),
        published_at_us=0,
        tables={NAME: CutTable(table_version=version)},
    )


def test_k3_a_table_that_is_older_than_the_cut_is_noticed(paths: LakePaths) -> None:
    write(paths)
    check_target(paths, cut_at(0), NAME, None)
    with pytest.raises(LakeStateError, match="older than the last cut"):
        check_target(paths, cut_at(1), NAME, None)


def test_k3_a_commit_of_others_is_noticed(paths: LakePaths) -> None:
    """One of a batch that no record tells of is of others, too."""
    write(paths)
    write(paths, note=OF_BATCH_2)
    check_target(paths, cut_at(1), NAME, None)
    with pytest.raises(LakeStateError, match="something other than this pipeline"):
        check_target(paths, cut_at(0), NAME, None)


def test_k16_a_table_of_somebody_else_is_noticed(paths: LakePaths) -> None:
    write(paths, app_id="cdc_pipeline/other/shop.orders/1")
    with pytest.raises(LakeStateError, match="not the one that was created for this target"):
        check_target(paths, cut_at(0), NAME, None)


def test_k2_each_statement_of_a_batch_has_an_id_of_its_own() -> None:
    """Under the same id Delta would skip the second one in silence; ids grow from batch to
    batch."""
    ids = [
        transaction_version(number, step) for number in (1, 2, 3) for step in range(STEPS_PER_BATCH)
    ]
    assert ids == list(range(16, 64))
