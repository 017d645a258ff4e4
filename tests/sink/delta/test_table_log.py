"""Logs that do not say what their table is: each costs its own table, and names the way out."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.errors import LakeDiskError, LakeStateError
from cdc_pipeline.lake.storage.storage import Storage
from cdc_pipeline.sink.delta.log import read_commit
from cdc_pipeline.sink.delta.table_log import TableLog, read_table_log

PROTOCOL: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
FIELD = {"name": "id", "type": "long", "nullable": True, "metadata": None}
METADATA = {
    "id": "6f1c0b9e-0000-4000-8000-000000000001",
    "schemaString": json.dumps({"type": "struct", "fields": [FIELD]}),
    "configuration": None,
}
INFO: dict[str, Any] = {"commitInfo": {}}
IS, MADE = {"protocol": PROTOCOL}, {"metaData": METADATA}
ADD = json.dumps({"add": {"path": "a", "stats": '{"numRecords":1}'}}, separators=(",", ":"))


def commit(path: Path, version: int, *actions: object) -> Path:
    """Texts are lines as they are."""
    file = path / "_delta_log" / f"{version:020d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [action if isinstance(action, str) else json.dumps(action) for action in actions]
    file.write_text("\n".join(lines))
    return file


def refusal(path: Path) -> LakeStateError:
    with pytest.raises(LakeStateError) as caught:
        read_table_log(path)
    assert str(path) in caught.value.what
    assert caught.value.next_step is not None
    assert caught.value.next_step.endswith(
        f", or move {path} away and take a new snapshot of the table"
    )
    assert caught.value.next_step.count(" or move ") == 1
    return caught.value


def readable(path: Path) -> TableLog:
    log = read_table_log(path)
    assert log is not None
    return log


def test_nulls_of_other_writers_are_nothing(tmp_path: Path) -> None:
    protocol = {"protocol": PROTOCOL | {"readerFeatures": None, "writerFeatures": None}}
    commit(tmp_path, 0, INFO, protocol, MADE, ADD)
    log = readable(tmp_path)
    assert (log.columns, log.properties, log.reader_features) == ({"id": "bigint"}, {}, ())
    assert (log.comments, log.needs_spark, log.mapped) == ({}, "", {})


@pytest.mark.parametrize(
    "actions",
    [
        (INFO,),
        (IS, INFO),
        (MADE, INFO),
        (IS, MADE, 17),
        (IS, MADE, "null"),
        (IS, MADE, {"txn": None}),
        (IS, {"metaData": None}),
        (IS, {"metaData": METADATA | {"schemaString": "{}"}}),
        (IS, {"metaData": METADATA | {"schemaString": "no"}}),
        ({"protocol": {"minReaderVersion": "one"}}, MADE),
    ],
)
def test_k22_json_that_is_no_table_is_told_as_damage(
    tmp_path: Path, actions: tuple[object, ...]
) -> None:
    commit(tmp_path, 0, *actions)
    assert str(tmp_path / "_delta_log") in (refusal(tmp_path).next_step or "")


@pytest.mark.parametrize("line", ['["commitInfo"]', '"commitInfo"', "17"])
def test_k22_a_commit_of_other_json_is_told_as_damage(tmp_path: Path, line: str) -> None:
    commit(tmp_path, 0, IS, MADE, line)
    refusal(tmp_path)
    if "commitInfo" in line:
        with pytest.raises(LakeStateError, match="cannot be read"):
            read_commit(tmp_path, 0)


@pytest.mark.parametrize("line", [ADD, ADD.replace("add", "remove")])
def test_k22_a_line_of_a_file_is_read_if_it_is_torn(tmp_path: Path, line: str) -> None:
    commit(tmp_path, 0, IS, MADE, line)
    assert readable(tmp_path).version == 0
    for size in (len(line) - 1, len(line) - 2, 10):
        file = commit(tmp_path, 1, INFO, line[:size])
        assert str(file) in refusal(tmp_path).what


def test_k22_the_missing_commit_of_a_gap_is_named(tmp_path: Path) -> None:
    commit(tmp_path, 0, IS, MADE)
    missing = commit(tmp_path, 1, INFO)
    commit(tmp_path, 2, INFO)
    assert readable(tmp_path).version == 2
    missing.unlink()
    error = refusal(tmp_path)
    assert error.expected == f"the commit {missing}"
    assert f"restore {missing} from" in (error.next_step or "")


@pytest.mark.parametrize("place", ["table", "table/_delta_log"])
def test_k22_a_file_in_the_place_of_a_folder_is_no_table(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("a file")
    assert read_table_log(tmp_path / "table") is None


def test_k22_a_log_that_cannot_be_listed_costs_its_table_unless_the_disk_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tmp_path, 0, IS, MADE)
    number = errno.EACCES

    def refused(folder: Path) -> list[str]:
        raise OSError(number, "refused", str(folder))

    monkeypatch.setattr(os, "listdir", refused)
    assert "refused" in str(refusal(tmp_path).got)
    number = errno.EMFILE
    with pytest.raises(OSError, match="refused"):
        read_table_log(tmp_path)


@pytest.mark.parametrize("name", [f"{1:020d}.json", f"{0:020d}.checkpoint.parquet"])
@pytest.mark.parametrize(
    ("number", "is_damage"), [(errno.EMFILE, False), (errno.EACCES, True), (errno.EIO, True)]
)
def test_k22_a_file_that_the_machine_cannot_open_is_not_told_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, is_damage: bool
) -> None:
    """Too many open files end with the process: nothing of the table is undone or suspended. A bad
    sector stays: it costs this table.
    """
    commit(tmp_path, 0, IS, MADE)
    commit(tmp_path, 1, INFO)
    file = tmp_path / "_delta_log" / name
    file.touch()
    opened = io.open

    def refused(path: Any, *args: Any, **kwargs: Any) -> Any:
        if str(path) == str(file):
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(io, "open", refused)
    monkeypatch.setattr(Storage, "arrow_source", lambda _, path: refused(path, "rb"))
    if is_damage:
        assert str(file) in refusal(tmp_path).what
    else:
        with pytest.raises(LakeDiskError, match=os.strerror(number)):
            read_table_log(tmp_path)


def test_a_place_without_a_table_costs_two_listings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a new target: one to look for a table, one to be sure that there is none."""
    listed: list[Path] = []

    def counted(storage: Storage, folder: Path) -> list[str]:
        listed.append(folder)
        return names(storage, folder)

    names = Storage.names
    monkeypatch.setattr(Storage, "names", counted)
    assert read_table_log(tmp_path) is None
    assert listed == [tmp_path / "_delta_log"] * 2


@pytest.mark.parametrize(
    ("protocol", "got"),
    [
        ({"minReaderVersion": 4}, "the reader version 4"),
        ({"readerFeatures": ["catalogManaged"]}, "the reader feature catalogManaged"),
        ({"readerFeatures": ["deletionVectors", "typeWidening-preview"]}, ""),
        ({"readerFeatures": ["variantShredding-preview"]}, ""),
    ],
)
def test_k22_a_log_that_needs_a_newer_reader_costs_its_table(
    tmp_path: Path, protocol: dict[str, Any], got: str
) -> None:
    written = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | protocol}
    commit(tmp_path, 0, written, MADE)
    if got:
        assert refusal(tmp_path).got == got
    else:
        assert "preview" in readable(tmp_path).needs_spark, "Spark knows more than this"
