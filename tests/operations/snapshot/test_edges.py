"""Loads at their edges: other rules, DDL and journals that are gone while they are under way (K14,
K17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SnapshotError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.long_operations import OperationStatus
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.status import status
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.kills import killed_at
from tests.support.memory_sink import MemoryLake

pytestmark = [pytest.mark.whole, pytest.mark.mysql]

SALT = "a salt of many characters"
# of the columns that are masked: none may stand in any file
HIDDEN = ("mail-of-", "hidden-", "tel:")


class Edges(RunObserver):
    """Does something at fault points, once each; and looks for plain text at those where files have
    come."""

    def __init__(self, folder: Path, **acts: Callable[[], None]) -> None:
        self._folder, self._acts, self.steps = folder, acts, list[str]()
        self._seen = set[Path]()

    def reached(self, point: str) -> None:
        if point in ("after_record", "snapshot_caught_up", "snapshot_swapping", "snapshot_swapped"):
            assert list(plain(self._folder, self._seen)) == [], point
        self._acts.pop(point, lambda: None)()

    def step(self, text: str) -> None:
        self.steps.append(text)


def plain(folder: Path, seen: set[Path]) -> Iterator[tuple[str, str]]:
    """Files that hold a masked value, and which; without those that were seen."""
    for file in set(folder.rglob("*")) - seen:
        if file.is_file():
            seen.add(file)
            data = file.read_bytes()
            if data.startswith(b"PAR1"):
                data += repr(pq.read_table(file).to_pylist()).encode()
            yield from ((str(file), word) for word in HIDDEN if word.encode() in data)


def accounts(numbers: range) -> str:
    rows = (
        (
            f"({at}, 'mail-of-{at}', 'tel:77-{at}', 'hidden-{at}', "
            f"'{'live' if at % 3 else 'draft'}', {at})"
        )
        for at in numbers
    )
    return f"INSERT INTO account VALUES {', '.join(rows)}"


def test_plain_text_is_found_in_compressed_files_too(tmp_path: Path) -> None:
    for number, compression in enumerate(("none", "zstd")):
        rows = pa.table({"mail": [f"mail-of-{number}"] * 2})
        pq.write_table(rows, tmp_path / f"{number}.parquet", compression=compression)
    (tmp_path / "note.json").write_text('{"phone": "tel:77-1"}')
    (tmp_path / "clean.json").write_text('{"mail": 7}')
    seen = set[Path]()
    assert sorted((Path(file).name, word) for file, word in plain(tmp_path, seen)) == [
        ("0.parquet", "mail-of-"),
        ("1.parquet", "mail-of-"),
        ("note.json", "tel:"),
    ]
    assert list(plain(tmp_path, seen)) == []


def test_k14_k17_masks_shards_ddl_and_purged_journals_inside_a_load(
    start_server: Callable[..., Server], memory: MemoryLake, tmp_path: Path
) -> None:
    server, database = start_server("mysql"), "shop"
    others = ["t_again", "t_drop", "t_key", "t_name"]
    server.execute_all(
        f"CREATE DATABASE {database}",
        f"USE {database}",
        "CREATE TABLE account (id INT PRIMARY KEY, mail VARCHAR(20), phone VARCHAR(20), secret "
        "VARCHAR(20), state VARCHAR(9), n INT)",
        accounts(range(6)),
        *(f"CREATE TABLE {name}_o (id INT PRIMARY KEY, v VARCHAR(5))" for name in ("eu", "us")),
        *(
            f"INSERT INTO {name}_o VALUES (1, '{name}1'), (2, '{name}2'), (3, '{name}3')"
            for name in ("eu", "us")
        ),
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT NOT NULL)" for name in others),
        *(
            f"INSERT INTO {name} VALUES (1, 10), (2, 20), (3, 30), (4, 40), (5, 50)"
            for name in others
        ),
    )

    def rules(kept: int) -> PipelineConfig:
        masks = {"mail": {"hash": {"salt": SALT}}, "phone": {"truncate": kept}, "secret": "drop"}
        return PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": live(server),
                "tables": {"include": [f"{database}.*"]},
                "start": start,
                "targets": [
                    {
                        "tables": [f"{database}.account"],
                        "name": f"{database}.person",
                        "masks": masks,
                        "filter": "state <> 'draft'",
                        "computed": {"twice": {"expression": "n * 2", "type": "bigint"}},
                    },
                    {
                        "tables": [f"{database}.*_o"],
                        "name": f"{database}.orders",
                        "shard_column": "region",
                        "shard_value": "{table}",
                    },
                ],
                "snapshot": {"chunk_rows": 4, "attempts_max": 3},
                "sink": {"lake_path": tmp_path / "lake"},
            }
        )

    def rows(table: str, *columns: str) -> list[tuple[Any, ...]]:
        return lake_rows(memory, tmp_path / "lake", database, table, list(columns))

    def orders() -> list[tuple[Any, ...]]:
        there = [name for (name,) in server.query(f"SHOW TABLES FROM {database} LIKE '%\\_o'")]
        found = [
            (name, *row)
            for name in there
            for row in server.query(f"SELECT id, v FROM {database}.{name}")
        ]
        return sorted(found, key=repr)

    start = here(server)
    cursors, asked = MemoryCursorStore(), [f"{database}.account"]

    def begun(**options: Any) -> list[OperationStatus]:
        with killed_at("snapshot_chunks"):
            take_snapshot(rules(6), cursors=cursors, tables=asked, **options)
        return list(status(rules(6), cursors=cursors).operations)

    # The log that a stopped load needs is purged: it says so, and begins again when it is told to.
    (first,) = begun()
    server.execute(f"UPDATE {database}.t_name SET n = 11 WHERE id = 1")
    server.flush_journal()
    capture(rules(6), cursors=cursors)
    server.purge_to(server.end_position()[0])
    with pytest.raises(SnapshotError, match="log that the snapshot needs is gone") as purged:
        take_snapshot(rules(6), cursors=cursors, tables=asked)
    assert "cdc-pipeline snapshot bank --restart" in str(purged.value)
    (second,) = begun(restart=True)
    assert first.operation_id != second.operation_id
    assert (second.rows, second.is_running) == (4, False)

    # What was read under other rules is not gone on with, and no file of it stays.
    config = rules(2)
    old = LakePaths(config.sink.lake_path, config.name).state / "operations" / second.operation_id
    assert old.is_dir()

    def ddl() -> None:
        server.execute_all(
            f"USE {database}",
            "UPDATE account SET state = 'live', mail = 'mail-of-late' WHERE id = 3",
            "UPDATE account SET state = 'draft' WHERE id = 4",
            "TRUNCATE TABLE eu_o",
            "INSERT INTO eu_o VALUES (9, 'eu9')",
            "UPDATE us_o SET v = 'new' WHERE id = 1",
            "DROP TABLE t_drop",
            "DROP TABLE t_again",
            "CREATE TABLE t_again (id INT PRIMARY KEY, z VARCHAR(5))",
            "INSERT INTO t_again VALUES (7, 'again')",
            "ALTER TABLE t_key DROP PRIMARY KEY, ADD PRIMARY KEY (n)",
            "INSERT INTO t_key VALUES (1, 60)",
        )

    def rename() -> None:
        server.execute_all(
            f"USE {database}",
            "RENAME TABLE t_name TO t_other",
            "UPDATE t_other SET n = 12 WHERE id = 2",
        )

    observer = Edges(tmp_path, snapshot_chunks=ddl, snapshot_read=rename)
    with listening(observer.reached):
        report = take_snapshot(config, cursors=cursors, observer=observer)
    assert any("written under another rule: masks changed" in step for step in observer.steps)
    assert report.resumed == ()
    assert not old.exists()
    gone = {note.table for note in report.notes if note.kind == "snapshot_gone"}
    assert gone == {f"{database}.t_drop", f"{database}.t_name"}
    assert sum(f"DDL changed {database}.t_drop" in step for step in observer.steps) <= 1
    capture(config, cursors=cursors)
    assert rows("person", "id", "phone", "state", "n", "twice") == sorted(
        (
            (key, phone[:2], state, n, 2 * n)
            for key, phone, state, n in server.query(
                f"SELECT id, phone, state, n FROM {database}.account WHERE state <> 'draft'"
            )
        ),
        key=repr,
    )
    assert rows("orders", "region", "id", "v") == orders()
    for name, columns in {"t_again": ["id", "z"], "t_key": ["id", "n"]}.items():
        assert rows(name, *columns) == server_rows(server, database, name, columns), name
    told = status(config, cursors=cursors)
    assert {name for name, table in told.tables.items() if table.partial} == {f"{database}.t_name"}
    assert rows("t_name", "id", "n") == [(1, 11)], "as it was when its table left the name"
    assert rows("t_other", "id", "n") == server_rows(server, database, "t_other", ["id", "n"])
    assert tmp_path / "lake" / database / "t_drop" not in memory.tables

    # A shard that is gone keeps its rows, and a load that would remove them is refused.
    server.execute(f"DROP TABLE {database}.eu_o")
    capture(config, cursors=cursors)
    with pytest.raises(SnapshotError, match=r"holds rows of shop\.eu_o"):
        take_snapshot(config, cursors=cursors, tables=[f"{database}.us_o"])
    assert {region for region, *_ in rows("orders", "region", "id")} == {"eu_o", "us_o"}

    # Another rule for a table that is there: with it out of the way, it is loaded by the new one.
    del memory.tables[tmp_path / "lake" / database / "person"]
    take_snapshot(rules(3), cursors=cursors, tables=[f"{database}.account"])
    assert {phone for (phone,) in rows("person", "phone")} == {"tel"}
    assert list(plain(tmp_path, set())) == []
