"""A reader follows a change from the log to the lake without turning back."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_pipeline.errors import CdcError
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.decode.schemas import journal_schemas
from tests.support.memory_shop import memory_shop
from tests.support.walks import Walk
from tests.targets.renames_model import names

DDL = (
    "ALTER TABLE d.a ADD COLUMN z INT DEFAULT 3",
    "ALTER TABLE d.a MODIFY c1 BIGINT",
    "ALTER TABLE d.a RENAME COLUMN c1 TO c2, RENAME TO d.b",
    "RENAME TABLE d.a TO d.b",
    "TRUNCATE d.a",
    "DROP TABLE d.a",
    "CREATE TABLE d.b (id INT PRIMARY KEY, x TEXT)",
    "CREATE INDEX i ON d.a (id)",
)


def test_a_statement_is_decided_without_turning_back() -> None:
    """What climbs asks the targets what they have."""
    walk = Walk()
    for sql in DDL:
        model = names()
        model.create("d.a")
        query, at = model.query(sql), Position("b.000001", 4)
        with walk:
            model.rules.is_isolated(query)
            try:
                model.rules.decide(
                    query,
                    targets=model.targets,
                    journal=at.journal,
                    offset=at.offset,
                    schemas=journal_schemas(),
                )
            except CdcError:
                continue
    assert len(walk.calls) > 150
    assert len(walk.climbs) <= 15, sorted(walk.climbs)


@pytest.mark.parametrize("journal", ["mysql-common", "mariadb-common"])
def test_a_run_walks_down(journal: str, tmp_path: Path) -> None:
    """No call of `run/` climbs; into it, and between rooms, at most eight do."""
    memory_shop(tmp_path / "first", include=["*.*"], journal=journal).run()  # loads the kernels
    shop = memory_shop(tmp_path / "shop", include=["*.*"], journal=journal)
    with Walk() as walk:
        assert shop.run().batches > 3
    assert len(walk.calls) > 600
    assert not [call for call in walk.climbs if call[0].startswith("run.")]
    rooms = [call for call in walk.climbs if call[0].split(".")[0] != call[2].split(".")[0]]
    assert len(rooms) <= 8, sorted(rooms)
