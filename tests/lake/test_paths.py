"""Paths and small files of the lake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import (
    LakePaths,
    application_id,
    folder_name,
    list_numbers,
    numbered,
    put_if_absent,
    read_json,
    remove_tree,
)
from tests.lake.writers import texts_that_won

_NAMES = st.one_of(st.text(max_size=90), st.text("ab~_é\u4e00", min_size=20, max_size=90))


@given(_NAMES)
def test_k22_every_name_has_a_plain_folder_that_fits(name: str) -> None:
    folder = folder_name(name)
    assert 1 <= len(folder) <= 240
    assert set(folder) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789$_-~")
    assert not folder.startswith("_")


@example(["\u4e00" * 40 + "a", "\u4e00" * 40 + "b"])  # they differ behind what is kept of them
@given(st.lists(_NAMES, max_size=20, unique=True))
def test_k22_two_names_never_share_a_folder(names: list[str]) -> None:
    assert len({folder_name(name) for name in names}) == len(names)


def test_k22_only_a_name_too_long_for_a_folder_is_shortened() -> None:
    """F10: 27 Chinese or 41 Cyrillic characters are too long once escaped; what fitted keeps its
    folder."""
    assert folder_name("order items") == "order~20items"
    assert folder_name("\u4e00" * 26) == "~e4~b8~80" * 26
    assert "~~" not in folder_name("~~" * 40)
    for name in ("\u4e00" * 27, "\u4e00" * 26 + "items__2", "\u0436" * 41, "\u4e00" * 64):
        folder = folder_name(name)
        readable, _, digest = folder.partition("~~")
        assert len(digest) == 32
        assert (
            bytes.fromhex(readable.replace("~", "")).decode()
            == name[: len(readable) // (3 * len(name[0].encode()))]
        )
        assert folder != folder_name(folder), (
            "a table that is called like the folder has another one"
        )


def test_a_schema_named_like_the_state_folder_lies_elsewhere(tmp_path: Path) -> None:
    paths = LakePaths(tmp_path, "shop")
    assert tmp_path / "_cdc" not in paths.table("_cdc.shop").parents
    assert paths.table("a.b.c") == tmp_path / "a" / "b~2ec"


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


def test_k16_a_link_that_was_sent_twice_meets_its_own_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over NFS an answer may be lost: the repeated request finds the name, which is of the same
    file (F20)."""
    link = os.link

    def twice(path: Path, target: Path) -> None:
        link(path, target)
        link(path, target)

    monkeypatch.setattr(os, "link", twice)
    path = numbered(tmp_path / "cuts", 7)
    assert put_if_absent(path, '"mine"')
    assert not put_if_absent(path, '"mine"'), "of another put, whatever it holds"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_k2_f126_an_application_id_has_nothing_that_spark_would_replace() -> None:
    """In a setting Spark replaces a reference: the log would have another id."""
    names = ["shop.${env:HOME}", "${system:user.name}.t", "shop.$", "shop.{", "shop.t"]
    ids = [application_id("shop", name, "1") for name in names]
    assert len(set(ids)) == len(ids)
    assert not [text for text in ids if "${" in text]
