"""The tables that are known before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_pipeline.config.settings import load_config
from cdc_pipeline.targets.known_tables import (
    SavedSources,
    known_tables,
    save_sources,
    saved_sources,
)
from cdc_pipeline.targets.shared import shared_targets
from cdc_pipeline.text.table_names import NameRule


def test_saved_names_are_compared_as_their_server_does_and_refuse_no_other_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be gone since."""
    patterns = {"one": "Shop.*", "two": "shop.*", "three": "*.orders"}
    for name, pattern in patterns.items():
        (tmp_path / f"{name}.yaml").write_text(
            "source: {kind: live, host: db.example, user: cdc, password: secret}\n"
            f"tables: {{include: ['{pattern}']}}\nsink: {{lake_path: lake}}\n"
        )
    one, two, three = (load_config(tmp_path / f"{name}.yaml") for name in patterns)
    tables = ("shop.orders",)
    file = save_sources(one, SavedSources(lower_case_table_names=NameRule.LOWER, tables=tables))
    assert known_tables(one, None) == {"shop.orders": tables}
    save_sources(two, SavedSources(tables=tables))
    assert known_tables(two, None) == {"shop.orders": tables}
    assert shared_targets(three, None) == []
    file.unlink()
    file.mkdir()
    assert saved_sources(one).tables == ()
    assert f"{file} is left out, it cannot be read: Is a directory" in caplog.text
