"""Where the browser comes from, and what is told where none can be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cdc_pipeline.errors import RuntimeSetupError
from tests.browser.installation import (
    PROGRAMS,
    VARIABLE,
    find_browser,
)
from tests.servers.apt_source import own_suite, parse_deb822, parse_one_line


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("script", ["echo not a browser", "echo Chromium 150.0.1.2; exit 3"])
def test_a_named_program_that_does_not_run_is_an_error(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(program(tmp_path, "my-browser", script)))
    with pytest.raises(RuntimeSetupError, match=VARIABLE):
        find_browser.__wrapped__()


def test_a_program_on_the_path_that_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    program(tmp_path / "bin", PROGRAMS[0], "echo 'install me by a package' >&2; exit 1")
    good = program(tmp_path / "bin", PROGRAMS[-1], "echo Google Chrome 150.0.1.2")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    for name in PROGRAMS[1:-1]:
        program(tmp_path / "bin", name, "exit 1")
    assert find_browser.__wrapped__().program == good


def test_a_machine_without_browser_and_without_apt_is_told_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("CDC_PIPELINE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(RuntimeSetupError, match="apt-get is not on this machine") as caught:
        find_browser.__wrapped__()
    assert VARIABLE in str(caught.value)
    assert PROGRAMS[0] in str(caught.value)
    assert not (tmp_path / "cache" / "browser").exists(), "nothing that looks complete is left"


def test_packages_are_of_the_machines_own_suite() -> None:
    updates_first = (
        "Types: deb\nURIs: file:/d\nSuites: trixie-updates trixie\nComponents: main contrib\n"
    )
    assert own_suite(parse_deb822(updates_first)) == "trixie"
    assert (
        own_suite(parse_one_line("deb file:/m noble main\ndeb [arch=amd64] file:/d bookworm main"))
        == "bookworm"
    )
    assert own_suite(parse_one_line("deb file:/m noble main universe")) is None
