"""What all commands share: suggestions, quiet, colors, completion, --json, exit codes."""

from __future__ import annotations

import inspect
import io
import json
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.cli.common.progress import OperationProgress, ProgressObserver
from tests.support.fake_capture import cut, write_config, write_cut
from tests.support.project import Project

SCRIPT = str(Path(sys.executable).with_name("cdc-pipeline"))


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="cdc-pipeline")


def _commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command, str]]:
    """Each command with its path and the help of its groups and itself."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for below, one, text in _commands(command, (*path, name)):
                yield below, one, f"{command.help} {text}"
        else:
            yield (*path, name), command, f"{command.help} {command.epilog or ''}"


ALL = [pytest.param(*one, id=" ".join(one[0])) for one in _commands()]


@pytest.mark.parametrize(("path", "command", "text"), ALL)
def test_every_command_takes_json_and_tells_its_exit_codes(
    path: tuple[str, ...], command: click.Command, text: str
) -> None:
    assert any("--json" in one.opts for one in command.params)
    assert re.search(r"[Ee]xit codes?\b", inspect.cleandoc(text)), path


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("discovr", "shop"), "did you mean 'discover'?"),
        (("cursor", "shw", "shop"), "did you mean 'show'?"),
        (("cuts", "lst"), "did you mean 'list'?"),
        (("config", "shema"), "did you mean 'schema'?"),
        (("quarantine", "delete"), "there are discard, list, replay, show"),
        (("run", "shop", "--until-transaction", "5"), "'--until-transactions'"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_right_one(words: tuple[str, ...], meant: str) -> None:
    done = _run(*words)
    assert done.exit_code == 2
    assert meant in done.stderr


# -- quiet, colors ---------------------------------------------------------------------------------


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    write_config(project.jobs, "shop")
    write_config(project.jobs, "shore")
    for batch in (1, 2):
        write_cut(project.lake, cut(batch=batch, tables={"shop.orders": batch}))
    monkeypatch.chdir(project.root)
    return project


def test_quiet_leaves_results_and_errors(shop: Project) -> None:
    loud = _run("cuts", "list", "shop", "--limit", "1")
    quiet = _run("--quiet", "cuts", "list", "shop", "--limit", "1")
    assert "1 older cut not shown" in loud.stderr
    assert quiet.stderr == ""
    assert quiet.stdout == loud.stdout
    wrong = _run("-q", "cuts", "show", "shop", "77")
    assert wrong.exit_code == 1
    assert "Error:" in wrong.stderr


def test_quiet_is_silent_about_a_runs_progress(fake_project: Project) -> None:
    quiet = _run("--quiet", "run", "shop")
    assert (quiet.exit_code, quiet.stderr) == (0, ""), quiet.output
    assert "applied" in quiet.stdout


def _on_a_terminal(*arguments: str, **environment: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [SCRIPT, *arguments],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux, when the other side is closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    process.wait()
    return text.decode()


COLOR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def test_colors_are_for_terminals_that_want_them(shop: Project) -> None:
    assert COLOR.search(_on_a_terminal("status"))
    assert not COLOR.search(_on_a_terminal("--no-color", "status"))
    assert not COLOR.search(_on_a_terminal("status", NO_COLOR="1"))


def test_a_command_that_waits_for_a_server_says_for_how_long(project: Project) -> None:
    """A line that moves, and is gone before what the command says in the end."""
    commands = ("discover", "doctor")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        (project.jobs / "shop.yaml").write_text(
            f"source: {{kind: live, host: 127.0.0.1, port: {port}, user: a, password: b, "
            "connect_timeout_s: 3.5}\nsink: {lake_path: ../lake}\n"
        )
        jobs = {"CDC_PIPELINE_JOBS": str(project.jobs), "CDC_PIPELINE_CURSOR": "lake"}
        with ThreadPoolExecutor() as side_by_side:
            told = side_by_side.map(lambda name: _on_a_terminal(name, "shop", **jobs), commands)
    for command, text in zip(commands, told, strict=True):
        seconds = [int(number) for number in re.findall(rf"(\d+) s: {command} shop", text)]
        assert seconds[0] >= 2
        assert seconds[-1] > seconds[0]
        first = text.rpartition("\r\x1b[K")[2].splitlines()[0]
        assert " s: " not in first


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_counts_the_merged_tables_beside_the_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    with ProgressObserver(stream) as progress:
        progress.merging()
        progress.merged(2, 5)
        progress._progress.refresh()
    assert re.search(r"merged 2 of 5 tables.*0:00:0\d", stream.getvalue())
    with OperationProgress(stream) as steps:  # of a snapshot: its seconds go on
        steps.step("opening a view")
        steps._progress.refresh()
    assert re.search(r"opening a view.*0:00:0\d", stream.getvalue())
    plain = io.StringIO()
    with ProgressObserver(plain) as progress:
        progress.merged(2, 5)
    assert plain.getvalue() == "", "without a terminal"


# -- completion ------------------------------------------------------------------------------------


def _completed(*words: str) -> list[str]:
    *before, incomplete = words
    shell = ShellComplete(cli, {}, "cdc-pipeline", "_CDC_PIPELINE_COMPLETE")
    return [one.value for one in shell.get_completions(before, incomplete)]


def test_commands_sources_and_options_are_completed(shop: Project) -> None:
    assert _completed("cu") == ["cursor", "cuts"]
    assert _completed("cuts", "l") == ["list"]
    assert _completed("run", "sh") == ["shop", "shore"]
    assert _completed("cursor", "show", "shor") == ["shore"]
    assert _completed("validate", "shop", "sho") == ["shop", "shore"]
    assert "--until" in _completed("run", "shop", "--un")
    assert _completed("--jobs", str(shop.root / "elsewhere"), "run", "") == []
    other = shop.root / "other"
    write_config(other, "crm")
    assert _completed("--jobs", str(other), "run", "") == ["crm"]


def test_the_completion_of_a_shell_is_clicks_own(shop: Project) -> None:
    done = subprocess.run(
        [SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "_CDC_PIPELINE_COMPLETE": "bash_complete",
            "COMP_WORDS": "cdc-pipeline run sho",
            "COMP_CWORD": "2",
        },
    )
    assert done.stdout.split() == ["plain,shop", "plain,shore"]


@pytest.mark.parametrize(
    "words",
    [("run", "--nonsense"), ("story", "shop", "shop.t", "id=1"), ("run",), ("nonsense",)],
    ids=" ".join,
)
def test_json_is_one_document_for_wrong_usage_too(shop: Project, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [SCRIPT, *words, "--json"], cwd=shop.root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "")
    told = json.loads(done.stdout)
    assert (told["code"], told["retryable"]) == ("usage", False)
    assert told["what"]
    assert " --help`" in told["next_step"]


def test_json_is_one_document_for_an_error_too(shop: Project) -> None:
    done = _run("cuts", "show", "shop", "77", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["code"]
    for command in ("run", "plan"):
        wrong = _run(command, "shop", "--until", "soon", "--json")
        assert wrong.exit_code == 2
        assert json.loads(wrong.stdout)["setting"] == "until"
