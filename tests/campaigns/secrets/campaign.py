"""Canaries through every command and failure.

Plays the same on both servers, in a mirror on one and a history on the other (even seeds: the other
way round), then searches every file of lake, home and temporary folder, all that was printed, the
arguments of all processes and Dagster's database. A finding names the canary and the place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns import frame
from tests.campaigns.frame import SERVERS, Campaign, Case, flavors, fresh
from tests.campaigns.secrets.play import Outcome, Play
from tests.conftest import temporary_database
from tests.servers import Server

_WAYS = (("mirror", "file"), ("history", "mixed"))


def _case(seed: int, number: int, *, flavor: str) -> Case:
    chosen = flavors(flavor)[number]
    return [[chosen, seed, *_WAYS[(seed + (chosen == "mysql")) % 2]]]


def _cases(_seed: int, *, flavor: str) -> int:
    return len(flavors(flavor))


@contextmanager
def _opened(folder: Path) -> Iterator[frame.Play]:
    def play(case: Case) -> Counter[str]:
        counts: Counter[str] = Counter()
        for flavor, seed, mode, store in case:
            with fresh(folder, f"{flavor}-{mode}-") as home, Server(flavor) as server:
                outcome = _play(server, home, seed, mode=mode, store=store)
            findings = [f"{one.canary} in {one.place} ({one.how})" for one in outcome.findings]
            assert not findings, "\n".join(findings)
            counts["commands"] += len(outcome.codes)
            counts["files"] += outcome.files
            counts["bytes"] += outcome.bytes
            counts["lists of arguments"] += outcome.arguments
        return counts

    yield play


def _play(server: Server, folder: Path, seed: int, *, mode: str, store: str) -> Outcome:
    with temporary_database(server) as database:
        play = Play(server, database, folder, seed, mode=mode, store=store)
        play.account()
        play.fill()
        people = f"{database}.people"
        with play:
            wrong = {"CANARY_PASSWORD": play.canaries["wrong_password"]}
            right = {"CANARY_PASSWORD": play.canaries["password"]}
            for command in ("validate", "plan", "run", "doctor"):
                play.command(command, *(() if command == "validate" else ("shop",)), **wrong)
            for command in ("validate", "plan", "doctor"):
                play.command(command, *(() if command == "validate" else ("shop",)), **right)
            play.prepare(commit=False)
            play.killed_run("shop", "lake/_cdc/shop/staging")
            assert play.command("run", "shop") == 0
            for arguments in (
                ["status"],
                ["history"],
                ["discover"],
                ["config", "show"],
                ["cuts", "list"],
                ["cuts", "show"],
                ["cursor", "show"],
                ["cursor", "history"],
            ):
                play.command(*arguments, "shop")
            play.command("quarantine", "list", "shop")
            play.command("verify", "shop", "--table", people)
            play.prepare(commit=True)
            where = f"email = '{play.canaries['where']}'"
            play.command("snapshot", "shop", "--table", people, "--where", where)
            play.command("snapshot", "shop", "--table", people, "--where", where + " AND")
            play.command("maintain", "shop")
            play.suspend_by_default()
            assert play.command("run", "shop", "--json") == 1
            play.command("snapshot", "shop", "--table", f"{database}.waiting")
            for plugin in ("mysql_clear_password", "dialog", "mysql_old_password"):
                play.lying_server("liar", plugin)
            play.unreachable("nowhere")
            play.refuse_rows()
            play.log_a_statement()
            for command in ("status", "plan", "doctor"):
                play.command(command, "shop", "--json")
        return play.judge()


CAMPAIGN = Campaign(
    "secrets",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=3600,
    needs=(*SERVERS, "jars"),
    options={"flavor": ""},
    budget="all",
    processes_max=1,
    shrink_plays_max=0,
    on_disk=True,
)
