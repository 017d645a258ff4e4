"""Connections that break, stall and trickle at each byte of a conversation with a server.

``python -m tests.campaigns.network [--cases N] [--seed S]``.

Captures by offset and by GTIDs, loads, reads of a view and examinations, with and without TLS, are
played through a proxy that does one thing wrong at one byte of one connection; see `judge.py` for
what must follow. Exits with 1 if anything else does; each finding is printed with the options that
play it alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from tests.campaigns.network.conversations import NAMES, Shop
from tests.campaigns.network.faulty_proxy import Fault
from tests.campaigns.network.judge import Conversation
from tests.conftest import temporary_database
from tests.servers import Flavor, Server
from tests.source.live.login_server import make_certificate

_HANGS_S = 600.0
TLS_MODES = ("off", "required")


def server_with_tls(flavor: Flavor, folder: Path) -> Server:
    """A server that encrypts if it is asked to; MySQL makes a certificate by itself."""
    if flavor == "mysql":
        return Server(flavor)
    folder.mkdir(mode=0o755)
    make_certificate(folder)
    for file in folder.iterdir():
        file.chmod(0o644)
    return Server(flavor, {"ssl_cert": folder / "ca.pem", "ssl_key": folder / "key.pem"})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.network", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=24, help="faults in each conversation")
    parser.add_argument("--flavor", choices=get_args(Flavor), help="one server only")
    parser.add_argument("--conversation", choices=NAMES, help="one conversation only")
    parser.add_argument("--tls", choices=TLS_MODES, help="with or without only")
    parser.add_argument("--fault", type=Fault.parse, help="one fault only, as a finding names it")
    options = parser.parse_args(arguments)
    began_s, cases, findings, slowest_s = time.monotonic(), 0, 0, 0.0
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="cdc-network-") as home:
        Path(home).chmod(0o755)  # a server that runs as another user reads its certificate there
        for flavor in (options.flavor,) if options.flavor else get_args(Flavor):
            with (
                server_with_tls(flavor, Path(home) / flavor) as server,
                temporary_database(server) as database,
            ):
                shop = Shop.at(server, database)
                for name in (options.conversation,) if options.conversation else NAMES:
                    for tls in (options.tls,) if options.tls else TLS_MODES:
                        told = f"--flavor {flavor} --conversation {name} --tls {tls}"
                        folder = Path(home) / f"{flavor}-{name}-{tls}"
                        conversation = Conversation(shop, name, tls, folder)
                        faults = conversation.faults(options.cases, options.seed)
                        for fault in [options.fault] if options.fault else faults:
                            faulthandler.dump_traceback_later(_HANGS_S, exit=True)
                            ended = conversation.judge(fault)
                            faulthandler.cancel_dump_traceback_later()
                            cases += ended.happened
                            outcomes[ended.outcome if ended.happened else "did not happen"] += 1
                            slowest_s = max(slowest_s, ended.took_s)
                            if ended.finding:
                                findings += 1
                                print(f"{told} --fault {fault}: {ended.finding}", flush=True)
                        print(
                            f"{flavor} {name}, TLS {tls}: {len(conversation.lengths)} connections; "
                            f"{cases} faults, {findings} findings, "
                            f"{time.monotonic() - began_s:.0f} s",
                            flush=True,
                        )
    told_outcomes = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
    print(
        f"seed {options.seed}: {cases} faults, {findings} findings in "
        f"{time.monotonic() - began_s:.0f} s; the slowest run {slowest_s:.1f} s\n{told_outcomes}"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
