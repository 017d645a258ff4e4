"""What a person is told, as golden texts (tests/golden/mistakes/README.md)."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli

FOLDER: Final = Path(__file__).resolve().parents[1] / "golden" / "mistakes"
COMMANDS: Final = FOLDER.parent / "cli"  # of what commands print when all is well
_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME: Final = re.compile(
    r"(?!2026-01-31T08:00:00)\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z| UTC)?"
)
# Journals of a server with few of them: others are what a person has written.
_JOURNAL: Final = re.compile(r"binlog\.0000\d\d\b(?! and 4)")
_PLACE: Final = re.compile(r"binlog\.0000\d\d:\d+")
# Once on a machine, or not: what was compiled, and how far the run was.
_PROGRESS: Final = re.compile(r"compiling the decoder|\w+: binlog\.\d+:\d+ to ")


class Told:
    """The transcript of one mistake: commands, what they print, their exit codes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lines: list[str] = []
        self._names: list[tuple[str, str]] = []

    def name(self, value: object, name: str) -> None:
        """Show `name` instead of a value that another run does not have."""
        self._names.append((str(value), name))

    def run(self, *arguments: str, exit_code: int) -> str:
        """Run a command, and return what it printed on both streams."""
        result = CliRunner().invoke(cli, list(arguments), prog_name="cdc-pipeline")
        assert result.exit_code == exit_code, result.output
        assert "Traceback" not in result.output
        self._lines += [
            f"$ cdc-pipeline {' '.join(arguments)}",
            *result.stdout.splitlines(),
            *(
                f"! {line}".rstrip()
                for line in result.stderr.splitlines()
                if not _PROGRESS.match(line)
            ),
            f"exit code {exit_code}",
            "",
        ]
        return str(result.output)

    def works(self, *arguments: str) -> None:
        """Run a command that succeeds now; what it prints is another test's matter."""
        result = CliRunner().invoke(cli, list(arguments), prog_name="cdc-pipeline")
        assert result.exit_code == 0, result.output
        self._lines += [f"$ cdc-pipeline {' '.join(arguments)}", "works", ""]

    def then(self, step: str) -> None:
        """Note what is done next, in words."""
        self._lines += [f"then: {step}", ""]

    def check(self, golden: str, *, folder: Path = FOLDER) -> None:
        """Compare the transcript with a golden file, or record it."""
        text = "\n".join(line.rstrip() for line in self._lines).rstrip() + "\n"
        for value, name in sorted(self._names, key=lambda one: -len(one[0])):
            text = text.replace(value, name)
        text = text.replace(f"{self._root}/", "").replace(str(self._root), "PROJECT")
        text = _TIME.sub("TIME", _UUID.sub("UUID", text))
        text = _JOURNAL.sub("JOURNAL", _PLACE.sub("JOURNAL:OFFSET", text))
        file = folder / f"{golden}.txt"
        if os.environ.get("CDC_RECORD_GOLDEN"):
            file.write_text(text, encoding="utf-8")
            return
        recorded = file.read_text(encoding="utf-8")
        difference = difflib.unified_diff(
            recorded.splitlines(), text.splitlines(), "recorded", "now", lineterm=""
        )
        assert text == recorded, "\n".join(difference)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """The transcript of a mistake in an empty project, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CDC_PIPELINE_JOBS", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Told(tmp_path)
