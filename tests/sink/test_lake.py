"""Paths and small files of the lake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.errors import LakeStateError, SinkError
from cdc_pipeline.sink.lake import (
    LakePaths,
    folder_name,
    list_numbers,
    numbered,
    put_if_absent,
    read_json,
    remove_tree,
    source_name,
)
from tests.sink.writers import texts_that_won


@given(st.text(min_size=1, max_size=20))
def test_folder_names_are_reversible_and_plain(name: str) -> None:
    folder = folder_name(name)
    assert source_name(folder) == name
    assert set(folder) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789$_-~")
    assert not folder.startswith("_")


def test_a_schema_named_like_the_state_folder_lies_elsewhere(tmp_path: Path) -> None:
    paths = LakePaths(tmp_path, "shop")
    assert tmp_path / "_cdc" not in paths.table("_cdc.shop").parents
    assert paths.table("a.b.c") == tmp_path / "a" / "b~2ec"


def test_a_name_too_long_for_a_folder_is_refused() -> None:
    with pytest.raises(SinkError, match="folder name"):
        folder_name("\u4e00" * 64)


def test_k16_of_many_writers_one_puts_its_file(tmp_path: Path) -> None:
    path = numbered(tmp_path / "cuts", 7)
    assert texts_that_won(path) == [path.read_text()]
    assert [file.name for file in path.parent.iterdir()] == ["00000000000000000007.json"]
    assert list_numbers(path.parent) == [7]
    assert list_numbers(tmp_path / "absent") == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = numbered(tmp_path, 1)
    path.write_text('{"version": 1')
    with pytest.raises(LakeStateError, match=str(path)):
        read_json(path)


def test_remove_tree_counts_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_text("1")
    (tmp_path / "a" / "b" / "two").write_text("2")
    assert remove_tree(tmp_path / "a") == 2
    assert not (tmp_path / "a").exists()
    assert remove_tree(tmp_path / "a") == 0


def test_k16_a_link_that_was_sent_twice_meets_its_own_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over NFS an answer may be lost: the repeated request finds the name, which is of the same file (F20)."""
    link = os.link

    def twice(path: Path, target: Path) -> None:
        link(path, target)
        link(path, target)

    monkeypatch.setattr(os, "link", twice)
    path = numbered(tmp_path / "cuts", 7)
    assert put_if_absent(path, '"mine"')
    assert not put_if_absent(path, '"mine"'), "of another put, whatever it holds"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
