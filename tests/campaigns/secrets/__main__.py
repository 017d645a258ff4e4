"""Canaries through every command and failure.

``python -m tests.campaigns.secrets [--seed S] [--flavor F] [--keep DIR]``.

Plays the same on both servers, in a mirror on one and a history on the other (even seeds: the other
way round), then searches every file of lake, home and temporary folder, all that was printed, the
arguments of all processes and Dagster's database. Exits with 1 at a finding; each names the canary
and the place.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

from tests.campaigns.secrets.play import Outcome, Play
from tests.conftest import temporary_database
from tests.servers import Flavor, Server

_WAYS = (("mirror", "file"), ("history", "mixed"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.secrets", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flavor", choices=get_args(Flavor), help="one server only")
    parser.add_argument("--keep", type=Path, help="leave what the plays wrote in this folder")
    options = parser.parse_args()
    began, bad = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="cdc-torture-secrets-") as temporary:
        for flavor in (options.flavor,) if options.flavor else get_args(Flavor):
            mode, store = _WAYS[(options.seed + (flavor == "mysql")) % 2]
            folder = (options.keep or Path(temporary)) / f"{flavor}-{mode}"
            folder.mkdir(parents=True)
            with Server(flavor) as server:
                outcome = _play(server, folder, options.seed, mode=mode, store=store)
            bad += len(outcome.findings)
            print(
                f"{flavor} {mode}: {len(outcome.codes)} commands, {outcome.files} files of "
                f"{outcome.bytes / 2**20:.1f} MiB, {outcome.arguments} lists of arguments: "
                f"{len(outcome.findings)} findings",
                flush=True,
            )
            for finding in outcome.findings:
                print(f"  {finding.canary} in {finding.place} ({finding.how})", flush=True)
    print(f"seed {options.seed}: {bad} findings, {time.monotonic() - began:.0f} s")
    return 1 if bad else 0


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


if __name__ == "__main__":
    sys.exit(main())
