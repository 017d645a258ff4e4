"""A sample of the campaign: one class for each second language, in every mode, on one
server each (K20)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.names.classes import SAMPLE, TEXTS, column, identifier, label
from tests.campaigns.names.play import Play
from tests.campaigns.sink.spark_settings import SPARK
from tests.servers import Server
from tests.support.project import write_settings


@pytest.mark.spark
@pytest.mark.nightly
def test_k20_names_and_values_of_every_kind_are_the_server_s(
    mysql_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K20: captured in every mode, killed once, captured again, and every command prints."""
    home = tmp_path / "dagster_home"
    write_settings(home)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    play = Play(mysql_server, SAMPLE, tmp_path, seed=1, spark=SPARK)
    try:
        play.run()
    finally:
        play.drop()
    assert not play.findings, "\n".join(play.findings)


def test_the_classes_are_names_that_servers_and_delta_take() -> None:
    """What the campaign makes of a class is one, so that it tries the pipeline and not the
    server."""
    for text in TEXTS.values():
        assert 0 < len(identifier(text)) <= 64
        assert not set(column(text)) & set(" ,;{}()\n\t=")
        assert "," not in label(text)
    assert len({identifier(text) for text in TEXTS.values()}) == len(TEXTS)
