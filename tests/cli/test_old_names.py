"""Options that were renamed are taken under their old names, for one version, and say so."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from cdc_pipeline.cli.common.ranges import RenamedOption, joined_place, with_bound
from tests.support.project import ROOT

SHOP = ROOT / "cdc_pipeline" / "demo" / "shop"


@click.command()
@with_bound
def bounded(bound: Any) -> None:
    click.echo(repr(bound))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["--until-journal", "binlog.000003"], "binlog.000003"),
        (["--until-offset", "900", "--until-journal", "binlog.000003"], "binlog.000003:900"),
        (["--until-gtid", "0-1-7"], "0-1-7"),
        (["--until-time", "2026-01-31T08:00:00Z"], "2026-01-31T08:00:00Z"),
    ],
)
def test_an_old_bound_is_the_new_one_and_names_it(old: list[str], new: str) -> None:
    runner = CliRunner()
    was, now = runner.invoke(bounded, old), runner.invoke(bounded, ["--until", new])
    assert was.exit_code == now.exit_code == 0, was.output
    assert was.stdout == now.stdout
    assert was.stderr.rstrip().endswith(f"will go with the next version: give --until {new}")
    assert now.stderr == ""


def test_no_help_shows_an_old_name() -> None:
    runner = CliRunner()
    for command, names in {
        ("run",): ("--until-journal", "--until-offset", "--until-gtid", "--until-time"),
        ("backfill",): ("--to",),
        ("binlog",): ("--from-time", "--to-time", "--from-position", "--to-position"),
        ("cursor", "set"): ("--journal", "--offset", "--gtid-set", "--earliest", "--latest"),
        ("cuts", "materialize"): ("--to",),
    }.items():
        words = runner.invoke(cli, [*command, "--help"]).stdout.split()
        assert not set(names) & set(words), command


def _lines(*options: str) -> tuple[list[str], str]:
    done = CliRunner().invoke(
        cli, ["binlog", "--format", "jsonl", str(SHOP / "journals"), *options]
    )
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines(), done.stderr


def test_the_old_end_of_a_journal_left_out_its_own_time() -> None:
    """And both old names of one end still hold together, as two values of the new one do."""
    every, _ = _lines()
    times = [json.loads(line)["ts"] for line in every]
    last = times[len(times) // 2]
    was, note = _lines("--to-time", last)
    assert was == [line for line, time in zip(every, times, strict=True) if time < last]
    assert "give --until" in note
    now, _ = _lines("--until", last)
    assert now == [line for line, time in zip(every, times, strict=True) if time <= last]
    begin = json.loads((SHOP / "recording.json").read_text())["middle"]
    place = f"{begin['journal']}:{begin['offset']}"
    assert _lines("--from-position", place)[0] == _lines("--from", place)[0]
    assert (
        _lines("--from", place, "--from", last)[0]
        == _lines("--from-time", last, "--from", place)[0]
    )


def test_a_gtid_set_of_from_counts_as_executed() -> None:
    every, _ = _lines()
    server = next(json.loads(line)["gtid"] for line in every).rpartition(":")[0]
    assert _lines("--from", f"{server}:1-400")[0] == _lines("--exclude-gtid", f"{server}:1-400")[0]


def test_an_old_flag_is_a_value_of_the_new_option() -> None:
    @click.command()
    @click.option(
        "--from",
        "begin",
        cls=RenamedOption,
        old_names={"--journal": True, "--offset": True, "--latest": False},
        from_old=joined_place("--journal", "--offset"),
    )
    def command(begin: str | None) -> None:
        click.echo(repr(begin))

    runner = CliRunner()
    assert runner.invoke(command, []).stdout == "None\n"
    assert runner.invoke(command, ["--journal", "b.1", "--offset", "9"]).stdout == "'b.1:9'\n"
    assert runner.invoke(command, ["--offset", "9"]).exit_code == 2
    assert runner.invoke(command, ["--journal", "b.1", "--from", "b.2"]).exit_code == 2
