"""What other readers of Delta make of the lakes: DuckDB, Polars and delta-rs, in an environment of
their own, against SELECT.

Lakes of several reader settings, and of both engines, are written by captures from a real server.
Those of both engines have the same rows at every cut, as Spark reads them, by the same batches.
Each has a table in four modes and a partitioned one. Three runs: inserts; updates, deletes and rows
that change their partition; an added column and changed keys. One lake is published too: DuckDB
reads its views. The queries of the page on readers give what the server gives.
The page's table is what was seen: `RECORD=1 make campaign NAME=readers` writes it again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.spark_config import SparkConfig
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.campaigns.frame import Campaign, Case, Play, locked_environment
from tests.campaigns.sink.verify import Lake
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.delta_protocol import check_log

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "all": {},
    "spark": {"engine": "spark"},  # with "all": the same batches by both engines
    "duckdb": {"reader_features": ["duckdb"]},
    "polars": {"reader_features": ["polars"]},
    "delta-rs": {"reader_features": ["delta-rs"]},
}
ROWS: Final = 3000
PAGE: Final = Path(__file__).parents[3] / "docs" / "lake" / "readers.md"
QUERIES: Final = re.compile(r"```(sql|python)\n((?:(?!```).)*lake/shop/item.*?)```", re.DOTALL)
SEEN: Final = re.compile(r"(?<=<!-- seen -->\n).*?(?=<!-- /seen -->)", re.DOTALL)
# What the page's queries give, by the server.
QUERY: Final = (
    "SELECT id, big, CAST(JSON_UNQUOTE(JSON_EXTRACT(doc, '$.a')) AS SIGNED), "
    "CAST(SUBSTRING_INDEX(took, ':', 1) AS SIGNED) FROM shop.item"
)
TABLES: Final = (
    "CREATE TABLE item (id INT PRIMARY KEY, n INT, price DECIMAL(20,4), name VARCHAR(40) CHARACTER "
    "SET utf8mb4, born DATETIME(6), at TIMESTAMP(3) NULL, day DATE, big BIGINT UNSIGNED, real_ "
    "DOUBLE, bin VARBINARY(20), doc JSON, year_ YEAR, took TIME)",
    "CREATE TABLE part (id INT PRIMARY KEY, kind VARCHAR(10), v INT)",
)
CHANGES: Final = (
    (
        "UPDATE item SET n = n + 1 WHERE id % 13 = 0",
        "DELETE FROM item WHERE id % 17 = 0",
        "INSERT INTO item (id, name) VALUES (5000, 'x')",
        "UPDATE part SET v = v + 1 WHERE id % 5 = 0",
        "UPDATE part SET kind = 'moved' WHERE id % 31 = 0",
        "DELETE FROM part WHERE id % 7 = 0",
    ),
    (
        "ALTER TABLE item ADD COLUMN extra VARCHAR(9) DEFAULT 'dd'",
        "UPDATE item SET extra = 'q' WHERE id % 19 = 0",
        "DELETE FROM item WHERE id % 23 = 0",
        "UPDATE item SET id = id + 10000 WHERE id % 29 = 0",
    ),
)


def targets() -> list[dict[str, Any]]:
    item = {"tables": ["shop.item"]}
    return [
        {**item, "mode": "mirror"},
        {**item, "mode": "history"},
        {**item, "mode": "changelog"},
        {**item, "mode": "soft_delete", "name": "{schema}.{table}_soft"},
        {"tables": ["shop.part"], "partition_by": ["kind"]},
    ]


def item_row(at: int) -> str:
    n = at % 7 if at % 11 else "NULL"
    return (
        f"({at}, {n}, {at}.{at:04d}, 'n{at % 97}ü', '2024-02-{at % 28 + 1:02d} 01:02:03.{at:06d}', "
        f"'2024-01-01 00:00:00.{at % 1000:03d}', '19{at % 90 + 10}-03-04', {2**64 - 1 - at}, {at} "
        f"/ 4, UNHEX('{at:06x}'), '{{\"a\": {at}}}', {1970 + at % 100}, '{at % 1600 - 800}:00:01')"
    )


def make_lakes(folder: Path) -> None:
    with Server("mysql") as server:
        server.execute_all("CREATE DATABASE shop", "USE shop", "SET time_zone = '+00:00'", *TABLES)
        shared = {
            "source": live(server),
            "start": here(server),
            "tables": {"include": ["shop.*"]},
            "targets": targets(),
        }
        lakes = []
        for name, settings in SETTINGS.items():
            sink = {"lake_path": folder / name, "spark": SPARK, **settings}
            if name == "all":
                views = {"duckdb": folder / "views.sql", "database": "views", "plain": True}
                sink["publish"] = views
            config = PipelineConfig.model_validate(
                {"name": name.replace("-", "_"), "sink": sink, **shared}
            )
            lakes.append((config, MemoryCursorStore()))
        parts = ", ".join(f"({at}, '{'é /%:='[at % 6]}{at % 3}', {at})" for at in range(ROWS // 10))
        first = (
            "INSERT INTO item VALUES " + ", ".join(map(item_row, range(ROWS))),
            f"INSERT INTO part VALUES {parts}, (1000, NULL, 1)",
        )
        for statements in (first, *CHANGES):
            server.execute_all(*statements)
            for config, cursors in lakes:
                capture(config, cursors=cursors)
        for table in ("item", "part"):
            names = [row[0] for row in server.query(f"SHOW COLUMNS FROM shop.{table}")]
            columns = ", ".join(f"CAST({n} AS CHAR)" if n == "took" else n for n in names)
            rows = [
                dict(zip(names, map(as_text, row), strict=True))
                for row in server.query(f"SELECT {columns} FROM shop.{table}")
            ]
            (folder / f"{table}.json").write_text(json.dumps(rows), encoding="utf-8")
        answer = [list(map(as_text, row)) for row in server.query(QUERY)]
    queries = dict(QUERIES.findall(PAGE.read_text(encoding="utf-8")))
    assert queries.keys() == {"sql", "python"}, queries.keys()
    queries = {"queries": queries, "answer": answer}
    (folder / "queries.json").write_text(json.dumps(queries), encoding="utf-8")


def compare_engines(folder: Path) -> Counter[str]:
    """What both engines have alike, as Spark reads it, and a check of all logs."""
    spark, totals = SparkProvider(SparkConfig(**SPARK)).session(), Counter[str]()
    lakes = {name: Lake(folder / name, name.replace("-", "_")) for name in SETTINGS}
    for lake in lakes.values():
        for table in lake.cuts()[-1].tables:
            totals["commits that are as the protocol says"] += check_log(lake.paths.table(table))
    for plain, by_spark in zip(lakes["all"].cuts(), lakes["spark"].cuts(), strict=True):
        assert plain.tables.keys() == by_spark.tables.keys()
        for table in plain.tables:
            rows, batches = [], []
            for name, cut in (("all", plain), ("spark", by_spark)):
                path, version = lakes[name].paths.table(table), cut.tables[table].table_version
                frame = table_frame(spark, path, version=version).toArrow()
                rows.append(sorted(frame.select(sorted(frame.column_names)).to_pylist(), key=repr))
                batches.append(_batches(path, version))
            assert rows[0] == rows[1], (table, plain.batch_number)
            assert batches[0] == batches[1], (table, plain.batch_number)
            totals["tables at cuts, the same by both engines"] += 1
    return totals


def _batches(path: Path, version: int) -> list[int]:
    """The transaction versions of a table's commits."""
    files = (path / "_delta_log" / f"{number:020d}.json" for number in range(version + 1))
    lines = (json.loads(line) for file in files for line in file.read_text("utf-8").splitlines())
    return [line["txn"]["version"] for line in lines if "txn" in line]


def as_text(value: object) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


_HERE = Path(__file__).parent


def _case(_seed: int, _number: int) -> Case:
    return [["all lakes"]]


def _cases(_seed: int) -> int:
    return 1


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    python = locked_environment(folder / "venv", _HERE / "requirements.lock")

    def play(case: Case) -> Counter[str]:
        if not case:
            return Counter()
        make_lakes(folder)
        totals = compare_engines(folder)
        # A process of its own folder: it imports nothing of this project.
        done = subprocess.run(
            [str(python), str(_HERE / "read.py"), str(folder)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stdout, flush=True)
        assert not done.returncode, done.stdout + done.stderr
        page = PAGE.read_text(encoding="utf-8")
        seen = (folder / "seen.md").read_text(encoding="utf-8")
        if os.environ.get("RECORD"):
            PAGE.write_text(SEEN.sub(lambda _: seen, page), encoding="utf-8")
        else:
            assert SEEN.findall(page) == [seen], f"the page has another table than:\n{seen}"
        return totals + Counter({"tables read": len(done.stdout.splitlines())})

    yield play


CAMPAIGN = Campaign(
    "readers",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=1800,
    needs=("mysql", "jars"),
    budget="all",
    shrink_plays_max=0,
    on_disk=True,
)
