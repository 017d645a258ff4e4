"""MariaDB 12.3 may keep its log inside InnoDB: such files and servers are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cdc_pipeline.errors import UnsupportedEventError
from cdc_pipeline.source.archive.files import journal_names, read_journal
from cdc_pipeline.source.live.server_checks import _RULES, _variable_findings


def test_k5_files_of_a_log_inside_innodb_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binlog.000001").touch()
    assert journal_names(tmp_path) == ["binlog.000001"]
    file = tmp_path / "binlog-000000.ibb"
    file.write_bytes(bytes(64))
    for read in (lambda: journal_names(tmp_path), lambda: list(read_journal(file))):
        with pytest.raises(UnsupportedEventError, match="inside InnoDB") as caught:
            read()
        assert caught.value.journal == file.name
        assert "remove binlog_storage_engine" in str(caught.value.next_step)


@pytest.mark.parametrize(("engine", "found"), [("innodb", True), ("", False), (None, False)])
def test_k5_a_server_with_a_log_inside_innodb_is_refused(engine: str | None, found: bool) -> None:
    class Server:
        def variables(self, _names: list[str]) -> dict[str, str]:
            said = {"log_bin": "ON", "binlog_format": "ROW"}
            return said if engine is None else said | {"binlog_storage_engine": engine}

        def setting_step(self, _variable: str, _value: str, own: str) -> str:
            return own

    settings = [one.error.setting for one in _variable_findings(cast(Any, Server()), _RULES)]
    assert settings == (["binlog_storage_engine"] if found else [])
