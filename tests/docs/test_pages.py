"""The pages do what they say: their marked commands run, in order, against real servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, missing_line, run_pages, steps
from tests.servers import Server
from tests.support.project import ROOT

README = ROOT / "README.md"
OWN_SERVER = DOCS / "start" / "own-server.md"
TUTORIAL = [
    DOCS / "tutorial" / f"{name}.md"
    for name in ("first-tables", "changes-and-restarts", "history-and-proof", "user-interface")
]
# They continue the first part of the tutorial, in this order.
HOW_TO = [
    DOCS / "howto" / f"{name}.md"
    for name in (
        "add-a-table",
        "rename",
        "mask",
        "histories",
        "ddl-policies",
        "new-snapshot",
        "verify-and-repair",
        "backfill",
        "upgrade",
        "move-a-lake",
    )
]
FLAVORS = pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)


@pytest.mark.spark
@pytest.mark.nightly
@FLAVORS
def test_the_tutorial_runs_as_it_is_written(
    flavor: str, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    (project := tmp_path / "project").mkdir()
    assert run_pages(TUTORIAL, project, start_server(flavor)) >= 20


@pytest.mark.spark
@pytest.mark.nightly
@FLAVORS
def test_the_how_to_pages_run_as_they_are_written(
    flavor: str, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    (project := tmp_path / "project").mkdir()
    assert run_pages([TUTORIAL[0], *HOW_TO], project, start_server(flavor)) >= 25


@pytest.mark.spark
@pytest.mark.parametrize(
    ("page", "flavor"),
    [
        pytest.param(README, "mysql", marks=[pytest.mark.mysql, pytest.mark.whole], id="readme"),
        pytest.param(OWN_SERVER, "mysql", marks=[pytest.mark.mysql, pytest.mark.nightly]),
        pytest.param(OWN_SERVER, "mariadb", marks=[pytest.mark.mariadb, pytest.mark.nightly]),
    ],
)
def test_the_first_steps_run_as_they_are_written(
    page: Path, flavor: str, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server(flavor)
    server.execute("CREATE DATABASE sales")
    server.execute("CREATE TABLE sales.orders (id INT PRIMARY KEY, status VARCHAR(20))")
    server.execute("INSERT INTO sales.orders VALUES (1, 'new'), (2, 'paid')")
    (project := tmp_path / "project").mkdir()
    assert run_pages([page], project, server) >= 1


def test_f96_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    """An extra is added to an environment that has the project; the project itself comes from a
    checkout or from the file of a wheel. The first command is one that works on a fresh machine."""
    readme = README.read_text(encoding="utf-8")
    first = readme.partition("```sh\n")[2].partition("```")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    parts = (ROOT / "cdc_pipeline/cli/project").glob("README*.md")
    for page in [README, *DOCS.rglob("*.md"), *parts]:
        for found in re.finditer(r"pip install\s[^\n`]*", page.read_text(encoding="utf-8")):
            assert not re.search(r"cdc-pipeline(?!\[)|--upgrade 'cdc-pipeline", found[0]), page


def test_every_page_with_commands_is_run() -> None:
    with_commands = {page for page in [README, *DOCS.rglob("*.md")] if steps(page)}
    assert with_commands == {README, OWN_SERVER, *TUTORIAL, *HOW_TO}


def test_steps_are_the_marked_blocks_with_their_output(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(
        "Text.\n\n```sh\nnever\n```\n\n<!-- run: exit 3 -->\n```sh\ncdc-pipeline verify x\n```\n\n"
        "<!-- output -->\n```text\na ... b\n```\n\n<!-- run: mariadb -->\n```sql\nSELECT 1;\n```\n"
    )
    first, second = steps(page)
    assert (first.code, first.exit_code, first.output) == (
        "cdc-pipeline verify x\n",
        3,
        ("a ... b",),
    )
    assert (second.language, second.exit_code) == ("sql", 0)
    assert first.is_for("mysql")
    assert not second.is_for("mysql")


@pytest.mark.parametrize(
    ("printed", "missing"),
    [
        ("a   1 b\nmore\nc", ""),
        ("c\na 1 b", "c"),
        ("a 1 b", "c"),
        ("xa 1 b\nc", "a ... b"),
    ],
)
def test_output_is_compared_line_by_line_in_order(printed: str, missing: str) -> None:
    assert missing_line(("a ... b", "c"), printed) == missing
