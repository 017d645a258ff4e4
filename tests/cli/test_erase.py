"""``cdc-pipeline erase``: what is refused before anything is read."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from tests.support.fake_capture import write_config
from tests.support.project import Project


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--where", "id"], 2, "COLUMN=VALUE"),
        (["--check", "--where", "id=1"], 2, "--check takes neither"),
        (["--keys", "keys.jsonl"], 2, "line 2 is no JSON object"),
        (["--where", "id=1", "--yes"], 1, "there is no cut yet"),
        (["--check"], 1, "there is no cut yet"),
    ],
)
def test_what_cannot_be_erased_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch, given: list[str], code: int, said: str
) -> None:
    write_config(project.jobs, "shop", include=("shop.*",))
    monkeypatch.chdir(project.root)
    (project.root / "keys.jsonl").write_text('{"id": "1"}\n[1]\n')
    asked = ["--jobs", str(project.jobs), "--cursor", "lake", "erase", "shop", "--table", "shop.t"]
    done = CliRunner().invoke(cli, [*asked, *given])
    assert done.exit_code == code, done.output
    assert said in done.stderr
    assert not list(project.root.rglob("erasures"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("erase", "nothing was erased of shop.t"),
        ("remask", "no masks of shop.t came after its rows"),
    ],
)
def test_a_check_without_a_request_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    write_config(project.jobs, "shop", include=("shop.*",))
    monkeypatch.setattr(f"cdc_pipeline.operations.erase.{command}.check", lambda *_, **__: [])
    asked = ["--jobs", str(project.jobs), "--cursor", "lake", command, "shop", "--table", "shop.t"]
    done = CliRunner().invoke(cli, [*asked, "--check"])
    assert (done.exit_code, done.stdout.strip()) == (0, said), done.output
