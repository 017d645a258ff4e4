"""What a cut says of its tables against their logs, without Spark: set back, written by others,
another writer's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut, CutTable
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.sink.delta import table_checks
from cdc_pipeline.sink.delta.commit import STEPS_PER_BATCH, transaction_version
from cdc_pipeline.sink.delta.table_checks import TableCheckCache, check_target, failing_targets
from cdc_pipeline.sink.delta.table_log import (
    APP_ID_PROPERTY,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    TableLog,
    read_table_log,
)
from tests.support.sink_values import cursor_at, interval_of

NAME, APP_ID = "shop.orders", "cdc_pipeline/shop/shop.orders/1"
OF_BATCH_2 = {"cdc_app_id": APP_ID, "cdc_batch": 2}


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    return LakePaths(tmp_path / "lake", "shop")


def write(
    paths: LakePaths,
    *,
    app_id: str = APP_ID,
    note: dict[str, object] | None = None,
    batch: int | None = None,
    restored: int | None = None,
) -> None:
    """Adds no rows; the first one makes the table. With `batch`: as that batch commits its rows.
    With `restored`: as it puts that version back.
    """
    if batch is not None:
        note = {"cdc_app_id": app_id, "cdc_batch": batch}
    log = paths.table(NAME) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.iterdir()))
    info: dict[str, object] = {"operation": "WRITE", "userMetadata": json.dumps(note or {})}
    if restored is not None:
        info |= {
            "operation": "RESTORE",
            "operationParameters": {"version": restored, "timestamp": None},
        }
    actions: list[dict[str, object]] = [{"commitInfo": info}]
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
    if batch is not None and restored is None:  # which has no transaction id
        actions.append({"txn": {"appId": app_id, "version": transaction_version(batch, 0)}})
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


@pytest.mark.parametrize("version", [1, 2])
def test_k22_a_commit_that_cannot_be_read_names_a_way_out(paths: LakePaths, version: int) -> None:
    """Also where a checkpoint covers it, so that the table itself can be read."""
    for _ in range(3):
        write(paths, note={"cdc_app_id": APP_ID, "cdc_maintenance": True})
    table = paths.table(NAME)
    if version == 1:
        DeltaTable(str(table)).create_checkpoint()
    file = table / "_delta_log" / f"{version:020d}.json"
    file.write_text('{"commitInfo": 7')
    with pytest.raises(LakeStateError, match=str(file)) as caught:
        check_target(paths, cut_at(0), NAME, None)
    assert caught.value.next_step == (
        f"restore this file from a backup of the lake, or move {table} away and take a new "
        "snapshot of the table: `cdc-pipeline snapshot shop --table shop.orders`"
    )


def test_k16_a_table_of_somebody_else_is_noticed(paths: LakePaths) -> None:
    write(paths, app_id="cdc_pipeline/other/shop.orders/1")
    with pytest.raises(LakeStateError, match="not the one that was created for this target"):
        check_target(paths, cut_at(0), NAME, None)


def test_k2_each_statement_of_a_batch_has_an_id_of_its_own() -> None:
    """Under the same id Delta would skip the second in silence; ids grow from batch to batch."""
    ids = [
        transaction_version(number, step) for number in (1, 2, 3) for step in range(STEPS_PER_BATCH)
    ]
    assert ids == list(range(16, 64))


def _settled(paths: LakePaths, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders of logs look as if nothing had happened for long; tables whose logs are read now."""
    read: list[str] = []

    def counted(path: Path) -> TableLog | None:
        read.append(path.name)
        return read_table_log(path)

    monkeypatch.setattr(table_checks, "read_table_log", counted)
    monkeypatch.setattr(table_checks, "_SETTLED_NS", 0)
    return read


def test_k3_an_untouched_table_is_compared_once(
    paths: LakePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(paths)
    cut, read = cut_at(0), _settled(paths, monkeypatch)
    assert failing_targets(paths, cut, None, compared=TableCheckCache(paths, boot="a")) == {}
    assert failing_targets(paths, cut, None, compared=TableCheckCache(paths, boot="a")) == {}
    assert read == ["orders"], "the second answer is one stat"
    failing_targets(paths, cut, None)
    assert len(read) == 2, "whoever does not hold the lock compares in full"
    failing_targets(paths, cut, None, compared=TableCheckCache(paths, boot="b"))
    assert len(read) == 3, "so does the first run after the machine has restarted"


@pytest.mark.parametrize("change", ["commit", "dropped", "replaced", "set back", "another cut"])
def test_k3_whatever_happens_to_a_table_is_noticed_by_the_next_comparison(
    paths: LakePaths, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    write(paths)
    write(paths, note={"cdc_app_id": APP_ID, "cdc_maintenance": True})
    cut, read = cut_at(1), _settled(paths, monkeypatch)
    assert failing_targets(paths, cut, None, compared=TableCheckCache(paths, boot="a")) == {}
    table = paths.table(NAME)
    if change == "commit":
        write(paths)
    elif change == "dropped":
        shutil.rmtree(table)
    elif change == "replaced":  # by a table of another program with as many versions
        table.rename(table.with_name("old"))
        write(paths, app_id="another")
        write(paths, app_id="another")
    elif change == "set back":
        (table / "_delta_log" / f"{1:020d}.json").unlink()
    else:
        cut = cut_at(7)
    assert list(failing_targets(paths, cut, None, compared=TableCheckCache(paths, boot="a"))) == [
        NAME
    ]
    assert list(failing_targets(paths, cut, None, compared=TableCheckCache(paths, boot="a"))) == [
        NAME
    ], "a failure is never known"
    assert len(read) == 3


def test_k3_a_folder_that_has_just_changed_is_not_known(
    paths: LakePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second change in the same tick of the clock would leave no trace."""
    write(paths)
    cut, read = cut_at(0), _settled(paths, monkeypatch)
    monkeypatch.setattr(table_checks, "_SETTLED_NS", 10**12)
    for _ in range(2):
        assert failing_targets(paths, cut, None, compared=TableCheckCache(paths, boot="a")) == {}
    assert len(read) == 2
