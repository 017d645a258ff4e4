"""What a person is told, as golden texts (tests/golden/mistakes/README.md)."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "tests" / "golden" / "mistakes"
COMMANDS: Final = FOLDER.parent / "cli"  # of what commands print when all is well
_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME: Final = re.compile(
    r"(?!2026-01-31T08:00:00)\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z| UTC)?"
)
# Journals of a server, which has fewer than 10,000: others are what a person has written.
_JOURNAL: Final = re.compile(r"binlog\.00\d{4}\b(?! and 4)")
_PLACE: Final = re.compile(r"binlog\.00\d{4}:\d+")
# The store's folder of a source, named after its lake.
_STORE: Final = re.compile(r"\bshop-[0-9a-f]{12}\b")
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
        result = CliRunner().invoke(cli, list(arguments), prog_name="cdc-pipeline")
        assert result.exit_code == exit_code, result.output
        assert "Traceback" not in result.output
        self._note(f"cdc-pipeline {' '.join(arguments)}", result.stdout, result.stderr)
        self._lines += [f"exit code {exit_code}", ""]
        return str(result.output)

    def run_apart(self, *arguments: str, exit_code: int, **environment: str) -> None:
        """For what happens once in a process, such as the start of Java."""
        done = subprocess.run(
            [sys.executable, "-m", "cdc_pipeline.cli", *arguments],
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        given = "".join(f"{name}={value} " for name, value in environment.items())
        self._note(f"{given}cdc-pipeline {' '.join(arguments)}", done.stdout, done.stderr)
        self._lines += [f"exit code {exit_code}", ""]

    def _note(self, command: str, printed: str, told: str) -> None:
        self._lines += [
            f"$ {command}",
            *printed.splitlines(),
            *(f"! {line}".rstrip() for line in told.splitlines() if not _PROGRESS.match(line)),
        ]

    def works(self, *arguments: str) -> None:
        result = CliRunner().invoke(cli, list(arguments), prog_name="cdc-pipeline")
        assert result.exit_code == 0, result.output
        self._lines += [f"$ cdc-pipeline {' '.join(arguments)}", "works", ""]

    def then(self, step: str) -> None:
        self._lines += [f"then: {step}", ""]

    def check(self, golden: str, *, folder: Path = FOLDER) -> None:
        text = "\n".join(line.rstrip() for line in self._lines).rstrip() + "\n"
        for value, name in sorted(self._names, key=lambda one: -len(one[0])):
            text = text.replace(value, name)
        text = text.replace(f"{self._root}/", "").replace(str(self._root), "PROJECT")
        text = _TIME.sub("TIME", _UUID.sub("UUID", _STORE.sub("shop-HASH", text)))
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
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CDC_PIPELINE_JOBS", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Told(tmp_path)
