"""What is taken for the remains of an interrupted CREATE, and what is left alone (K22)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.sink.delta.log import clear_interrupted_create, is_interrupted_create
from cdc_pipeline.sink.delta.table_log import read_table_log

COMMIT = "00000000000000000000.json"


def put(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "left",
    [
        (),
        (f".{COMMIT}.1f.tmp",),
        (f".{COMMIT}.crc", "00000000000000000000.crc"),
        ("_commits/x.json",),
        (COMMIT,),
    ],
)
def test_k22_a_log_without_a_commit_is_no_table_and_goes(
    tmp_path: Path, left: tuple[str, ...]
) -> None:
    table = tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    for name in left:
        put(table / "_delta_log" / name)
    (table / "part=1").mkdir()
    put(table / ".put-part-1.parquet", "half")
    assert read_table_log(table) is None
    clear_interrupted_create(table, table="shop.orders")
    assert list(table.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        f"_delta_log/{COMMIT}",
        "_delta_log/00000000000000000001.json",
        "_delta_log/00000000000000000010.checkpoint.parquet",
        "_delta_log/_last_checkpoint",
        "notes.txt",
        "part=1/rows.parquet",
        "_change_data/rows.parquet",
    ],
)
def test_k22_whatever_else_lies_there_stays(tmp_path: Path, name: str) -> None:
    put(tmp_path / "_delta_log" / ".tmp")
    put(tmp_path / name, "somebody's")
    with pytest.raises(LakeStateError, match="not empty"):
        clear_interrupted_create(tmp_path, table="shop.orders")
    assert (tmp_path / name).read_text() == "somebody's"
    assert (tmp_path / "_delta_log" / ".tmp").exists(), (
        "nothing is removed where something else lies"
    )


def test_k22_a_folder_that_is_a_file_or_is_not_there(tmp_path: Path) -> None:
    clear_interrupted_create(tmp_path / "absent", table="shop.orders")
    put(tmp_path / "file")
    with pytest.raises(LakeStateError, match="no Delta table"):
        clear_interrupted_create(tmp_path / "file", table="shop.orders")
    assert not is_interrupted_create(tmp_path / "file")


def test_k22_names_that_an_earlier_try_gave_stay(tmp_path: Path) -> None:
    """Files that a load put there before the commit that names them."""
    put(tmp_path / "part-1.parquet", "rows")
    put(tmp_path / "_delta_log" / ".tmp")
    clear_interrupted_create(tmp_path, table="shop.orders", known={"part-1.parquet"})
    assert [path.name for path in tmp_path.iterdir()] == ["part-1.parquet"]
