"""Connections that break, stall and trickle at each byte of a conversation with a server.

Captures by offset and by GTIDs, loads, reads of a view and examinations, with and without TLS, are
played through a proxy that does one thing wrong at one byte of one connection; see `judge.py` for
what must follow. Where the bytes are is known once a conversation was played, so a case is the
number of a fault of a seed, or the fault as a finding names it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import SERVERS, Campaign, Case, OnDemand, Play, flavors, fresh, named
from tests.campaigns.network.conversations import NAMES, Name, Shop
from tests.campaigns.network.faulty_proxy import Fault
from tests.campaigns.network.judge import Conversation
from tests.conftest import temporary_database
from tests.servers import Flavor, Server
from tests.source.live.login_server import make_certificate

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


def _case(seed: int, number: int, *, flavor: str, conversation: str, tls: str) -> Case:
    kinds = [
        [chosen, name, mode]
        for name, mode, chosen in itertools.product(
            named(conversation, NAMES), named(tls, TLS_MODES), flavors(flavor)
        )
    ]
    fault, which = divmod(number, len(kinds))
    return [[*kinds[which], [seed, fault]]]


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    @contextmanager
    def shop(flavor: Flavor) -> Iterator[Shop]:
        with (
            server_with_tls(flavor, folder / flavor) as server,
            temporary_database(server) as database,
        ):
            yield Shop.at(server, database)

    @contextmanager
    def conversation(flavor: Flavor, name: Name, tls: str) -> Iterator[Conversation]:
        with fresh(folder) as home:
            yield Conversation(shops.get(flavor), name, tls, home)

    with OnDemand(shop) as shops, OnDemand(conversation) as conversations:

        def play(case: Case) -> Counter[str]:
            outcomes: Counter[str] = Counter()
            for flavor, name, tls, which in case:
                played = conversations.get(flavor, name, tls)
                if isinstance(which, str):
                    fault = Fault.parse(which)
                else:
                    seed, number = which
                    fault = played.faults(number + 1, seed)[number]
                ended = played.judge(fault)
                assert not ended.finding, f"{flavor} {name}, TLS {tls}, {fault}: {ended.finding}"
                outcomes[ended.outcome if ended.happened else "did not happen"] += 1
            return outcomes

        yield play


CAMPAIGN = Campaign(
    "network",
    _case,
    _opened,
    case_s_max=600,
    needs=SERVERS,
    options={"flavor": "", "conversation": "", "tls": ""},
    budget="480",
    processes_max=2,
)
