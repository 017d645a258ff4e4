"""Names, keys, labels, defaults and values of every class of characters.

Each pipeline has a few classes as its tables, in every mode, on one of both servers; see `play.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import SERVERS, Campaign, Case, OnDemand, Play, flavors, fresh
from tests.campaigns.names import play as names_play
from tests.campaigns.names.classes import TEXTS, shuffled
from tests.campaigns.sink.spark_settings import LONG_RUN
from tests.servers import Server
from tests.support.project import write_settings


def _case(seed: int, number: int, *, flavor: str, group: int) -> Case:
    chosen = flavors(flavor)
    set_number, which = divmod(number, len(chosen))
    classes = shuffled(list(TEXTS), seed)[set_number * group :][:group]
    return [["server", chosen[which], seed], *classes]


def _cases(_seed: int, *, flavor: str, group: int) -> int:
    return len(flavors(flavor)) * -(-len(TEXTS) // group)


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    with OnDemand(lambda flavor: Server(flavor, {"local_infile": "OFF"})) as servers:

        def play(case: Case) -> Counter[str]:
            chosen = [choice for choice in case if isinstance(choice, list)]
            classes = [choice for choice in case if isinstance(choice, str)]
            if not chosen or not classes:
                return Counter()
            _name, flavor, seed = chosen[0]
            with fresh(folder) as home:
                write_settings(home / "dagster_home")
                os.environ["DAGSTER_HOME"] = str(home / "dagster_home")
                server = servers.get(flavor)
                pipeline = names_play.Play(server, classes, home, seed=seed, spark=LONG_RUN)
                pipeline.run()
                pipeline.drop()
            assert not pipeline.findings, "\n".join(pipeline.findings)
            return Counter(classes=len(classes), commands=pipeline.commands)

        yield play


CAMPAIGN = Campaign(
    "names",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=3600,
    needs=(*SERVERS, "jars"),
    options={"flavor": "", "group": 9},
    budget="all",
    processes_max=1,
    shrink_plays_max=20,
    on_disk=True,
)
