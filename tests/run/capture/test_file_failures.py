"""K22: what the operating system or a server refuses has a name and a way out, at whatever step it
comes (F22)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import CdcError, SinkError, SourceError
from cdc_pipeline.lake.storage.file_failures import files_failing
from cdc_pipeline.lake.storage.storage import Storage, refused
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta.failures import is_of_the_machine
from cdc_pipeline.source.live.connection import ServerConnection
from tests.run.plan.test_unmatched import archive
from tests.support.fake_capture import write_config
from tests.support.project import Project


def test_k22_a_file_where_the_lake_should_be_is_named(tmp_path: Path) -> None:
    """K22: before, a NotADirectoryError; what the error says works from there."""
    lake = tmp_path / "lake"
    lake.write_text("no folder")
    settings = archive(lake, "shop.nothing", allow_empty=True)
    with pytest.raises(CdcError, match="lake") as caught:
        capture(settings, cursors=MemoryCursorStore())
    assert "move it away" in str(caught.value.next_step)
    lake.rename(tmp_path / "away")
    assert capture(settings, cursors=MemoryCursorStore()).outcome == "nothing_new"


def test_k22_a_full_disk_at_any_step_of_a_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K22: here at a file that is replaced; before, a raw OSError."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    settings = archive(tmp_path, "shop.nothing", allow_empty=True)
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "replace", full)
        with pytest.raises(SinkError, match="No space left") as caught:
            capture(settings, cursors=MemoryCursorStore())
    assert "free space" in str(caught.value.next_step)
    assert capture(settings, cursors=MemoryCursorStore()).outcome == "nothing_new"


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        ("EROFS", "permission to read and write"),
        ("EMFILE", "ulimit"),
        ("EIO", "system's log"),
        ("EDQUOT", "quota"),
    ],
)
def test_k22_each_refusal_has_its_cure(tmp_path: Path, number: str, cure: str) -> None:
    """K22: by the number of the system's error."""
    with pytest.raises(SinkError) as caught, files_failing(tmp_path):
        raise OSError(getattr(errno, number), "refused", str(tmp_path / "file"))
    assert cure in str(caught.value.next_step)
    assert "file" in caught.value.what


def test_k22_a_lake_that_cannot_be_made_is_told_to_be_elsewhere(tmp_path: Path) -> None:
    lake = Path("/proc/none/lake")
    with pytest.raises(SinkError) as caught, files_failing(lake):
        lake.mkdir(parents=True)
    assert "/proc/none/lake (sink.lake_path) cannot be made" in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("number", "retryable", "machine"),
    [
        ("EIO", True, False),
        ("EMFILE", True, False),
        ("ENOSPC", True, True),
        ("EACCES", False, False),
    ],
)
def test_k22_what_a_disk_may_take_the_next_time_gives_up_no_table(
    number: str, retryable: bool, machine: bool
) -> None:
    """K22: a disk that failed once at a data file suspended its table in the same run."""
    code = getattr(errno, number)
    found = refused(OSError(code, os.strerror(code)), Path("part-00000.parquet"))
    assert found.retryable == retryable
    assert is_of_the_machine(found) == machine


def test_k22_what_is_of_the_network_is_no_file(tmp_path: Path) -> None:
    """K22: nobody is sent to look at a disk for that."""
    with pytest.raises(ConnectionResetError), files_failing(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "reset")


@pytest.mark.parametrize("command", ["status", "plan", "cursor show", "cuts list"])
def test_k22_commands_name_a_file_where_the_lake_should_be(project: Project, command: str) -> None:
    """K22: no command ends with an error without a name."""
    write_config(project.jobs, "shop")
    project.lake.write_text("no folder")
    result = CliRunner().invoke(cli, ["--jobs", str(project.jobs), *command.split(), "shop"])
    assert result.exit_code == 2, result.output
    assert f"sink.lake_path: {project.lake} is a file; expected a folder" in result.output


def test_k22_a_server_that_asks_for_a_local_file_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K22: pymysql's refusal of LOAD DATA LOCAL was a raw RuntimeError."""

    class Lying:
        def cursor(self) -> Any:
            raise RuntimeError(
                "**WARN**: Received LOAD_LOCAL packet but local_infile option is false."
            )

        def close(self) -> None: ...

    source = LiveSourceConfig(kind="live", host="localhost", user="cdc", password="x")  # type: ignore[arg-type]
    server = ServerConnection(source)
    monkeypatch.setattr(server, "_open", Lying)
    with pytest.raises(SourceError, match="local file") as caught:
        server.query("SELECT 1")
    assert "source.host" in str(caught.value.next_step)
