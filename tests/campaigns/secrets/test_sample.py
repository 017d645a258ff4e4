"""K26: a sample of the campaign: one server, one JVM, the failures that cost little."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.secrets.canaries import NAMES, Canaries
from tests.campaigns.secrets.play import Play
from tests.campaigns.secrets.searching import Search
from tests.servers import Server


@pytest.mark.spark
@pytest.mark.whole
def test_k26_nothing_that_a_play_leaves_or_prints_gives_a_secret_away(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    """F13: passwords, salts, masked values and literals stood in errors, records, cuts, notes and
    Dagster."""
    play = Play(mysql_server, mysql_database, tmp_path, seed=26, tables="*[eg]")
    play.account()
    play.fill()
    play.suspend_by_default()
    with play:
        assert play.command("run", "shop") == 1, "a target stops at the default of a masked column"
        play.refuse_rows()
        play.log_a_statement()
        assert play.command("status", "shop", "--json") == 1, "a table is suspended"
        for command in (["config", "show"], ["discover"], ["history"]):
            assert play.command(*command, "shop", "--json") == 0
    assert play.judge().findings == []


def test_the_search_finds_each_canary_in_each_form(tmp_path: Path) -> None:
    canaries = Canaries.of(1)
    search = Search(canaries)
    for number, (_, form) in enumerate(canaries.forms()):
        (tmp_path / f"{number}.bin").write_bytes(b"x" * number + form + b"y")
    assert {finding.canary for finding in search.in_folder(tmp_path)} == set(NAMES)
    assert search.files == len(list(canaries.forms()))
