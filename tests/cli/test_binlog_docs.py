"""The examples of docs/reference/binlog.md are what the command prints.
`python -m tests.cli.test_binlog_docs` renews them."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

from click.testing import CliRunner

from cdc_pipeline.cli.app import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "binlog.md"
EXAMPLE = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)
COUNT = 5


def output_of(command: str, directory: Path) -> str:
    """What a command line of the page prints; `cat`, `head` and `tail` around it are done here."""
    stages = [shlex.split(stage) for stage in command.split(" | ")]
    stdin = (ROOT / stages.pop(0)[1]).read_bytes() if stages[0][0] == "cat" else None
    program, *arguments = stages.pop(0)
    assert program == "cdc-pipeline"
    at = {"OUT": str(directory / "OUT")}
    made = [
        at.get(part, str(ROOT / part) if part.startswith(("cdc_pipeline/", "tests/")) else part)
        for part in arguments
    ]
    result = CliRunner().invoke(cli, made, input=stdin)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.replace(str(directory) + "/", "").splitlines()
    for tool, count in stages:
        lines = lines[: int(count[1:])] if tool == "head" else lines[-int(count[1:]) :]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def renewed(page: str, directory: Path) -> str:
    """The page with the output that the commands have now."""
    return EXAMPLE.sub(
        lambda found: f"```console\n$ {found[1]}\n{output_of(found[1], directory)}```", page
    )


def test_the_examples_are_what_the_command_prints(tmp_path: Path) -> None:
    page = PAGE.read_text()
    assert len(EXAMPLE.findall(page)) == COUNT
    assert renewed(page, tmp_path) == page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        PAGE.write_text(renewed(PAGE.read_text(), Path(made)))
