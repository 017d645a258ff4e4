"""Rescued values in every mode at once: the column comes in the batch that needs it, and follows
each mode's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import SPARK, here, live

pytestmark = pytest.mark.spark


@pytest.mark.whole
def test_k10_each_mode_keeps_rescued_texts_as_it_keeps_values(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    """And K14: the text of a masked column is in none of them."""
    server, database = mysql_server, mysql_database
    rules: list[dict[str, Any]] = [
        {
            "tables": ["*.t"],
            "mode": mode,
            "name": f"{{schema}}.{mode}",
            "masks": {"m": {"fixed": None}},
        }
        for mode in ("mirror", "soft_delete", "history", "changelog")
    ]
    rules.append(
        {
            "tables": ["*.t"],
            "name": "{schema}.text",
            "types": {"d": "string"},
            "columns": {"exclude": ["m"]},
        }
    )
    rules.append({"tables": ["*.k"], "keyless": "row_hash"})
    config = PipelineConfig.model_validate(
        {
            "name": "bank",
            "source": live(server),
            "tables": {"include": [f"{database}.*"]},
            "targets": rules,
            "sink": {"lake_path": tmp_path / "lake", "spark": SPARK},
            "start": here(server),
        }
    )
    cursors = MemoryCursorStore()
    session = ["SET sql_mode = ''", f"USE `{database}`"]
    server.execute_all(
        *session,
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE, m DATE)", "CREATE TABLE k (d DATE, v INT)",
        "INSERT INTO t VALUES (1, '2026-01-01', NULL)", "INSERT INTO k VALUES (NULL, 1)",
    )  # fmt: skip
    capture(config, cursors=cursors)
    server.execute_all(
        *session,
        "UPDATE t SET d = '0000-00-00' WHERE id = 1", "UPDATE t SET d = '2026-02-00' WHERE id = 1",
        "INSERT INTO t VALUES (2, '2026-00-00', '0000-00-00'), (3, '0000-00-00', NULL)",
        "DELETE FROM t WHERE id = 2", "UPDATE t SET d = '2026-03-03' WHERE id = 3",
        "INSERT INTO k VALUES ('0000-00-00', 1), ('0000-00-00', 1), ('2026-01-00', 1), (NULL, 1)",
        "DELETE FROM k WHERE d = '0000-00-00' LIMIT 1",
    )  # fmt: skip
    report = capture(config, cursors=cursors)
    texts = {
        row[0]: row[1] for row in server.query(f"SELECT id, CAST(d AS CHAR) FROM `{database}`.t")
    }
    assert texts == {1: "2026-02-00", 3: "2026-03-03"}

    def rows(table: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = spark.read.format("delta").load(str(tmp_path / "lake" / database / table))
        found = [tuple(row) for row in frame.selectExpr(*columns).collect()]
        return sorted(found, key=repr)

    rescued = "_cdc_rescued['d']"

    def ordered(*expected: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return sorted(expected, key=repr)

    assert rows("mirror", "id", rescued) == ordered((1, texts[1]), (3, None))
    assert rows("soft_delete", "id", rescued, "_cdc_deleted") == ordered(
        (1, texts[1], False), (2, "2026-00-00", True), (3, None, False),
    )  # fmt: skip
    assert rows("history", "id", rescued, "__END_AT IS NULL") == ordered(
        (1, "0000-00-00", False), (1, None, False), (1, texts[1], True),
        (2, "2026-00-00", False), (3, "0000-00-00", False), (3, None, True),
    )  # fmt: skip
    assert rows("changelog", "id", "_cdc_op", rescued, f"_cdc_before.{rescued}") == ordered(
        (1, "insert", None, None), (1, "update", "0000-00-00", None),
        (1, "update", texts[1], "0000-00-00"),
        (2, "delete", "2026-00-00", "2026-00-00"), (2, "insert", "2026-00-00", None),
        (3, "insert", "0000-00-00", None), (3, "update", None, "0000-00-00"),
    )  # fmt: skip
    assert rows("text", "id", "d") == sorted(texts.items())
    assert rows("k", "_cdc_rescued['d']", "v",
        "count(*) OVER (PARTITION BY map_entries(_cdc_rescued))") == ordered(
        ("0000-00-00", 1, 1), ("2026-01-00", 1, 1), (None, 1, 2), (None, 1, 2),
    )  # fmt: skip
    for mode in ("mirror", "soft_delete", "history", "changelog"):
        assert not rows(mode, "_cdc_rescued['m']", "id")[0][0]
        assert report.tables[f"{database}.{mode}"].rescued["d"] == 4
