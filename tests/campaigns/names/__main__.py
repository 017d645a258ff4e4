"""Names, keys, labels, defaults and values of every class of characters.

``python -m tests.campaigns.names [--seed S]``.

Each pipeline has a few classes as its tables, in every mode, on one of both servers; see `play.py`.
Exits with 1 where something is not as it should be; each finding names the class and the command
that plays it alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

from tests.campaigns.names.classes import TEXTS, shuffled
from tests.campaigns.names.play import Play
from tests.campaigns.sink.spark_settings import LONG_RUN
from tests.servers import Flavor, Server

ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.names", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--group", type=int, default=9, help="classes that share a pipeline")
    parser.add_argument("--flavor", choices=get_args(Flavor), help="one server only")
    parser.add_argument(
        "--classes", nargs="*", choices=list(TEXTS), metavar="CLASS", help="these classes only"
    )
    options = parser.parse_args()
    started, findings, commands, played = time.monotonic(), 0, 0, 0
    names = shuffled(options.classes or list(TEXTS), options.seed)
    groups = [names[at : at + options.group] for at in range(0, len(names), options.group)]
    with tempfile.TemporaryDirectory(prefix="cdc-names-") as folder:
        for flavor in (options.flavor,) if options.flavor else get_args(Flavor):
            with Server(flavor, {"local_infile": "OFF"}) as server:
                for number, classes in enumerate(groups):
                    home = Path(folder) / f"{flavor}-{number}"
                    (home / "dagster_home").mkdir(parents=True)
                    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home / "dagster_home")
                    os.environ["DAGSTER_HOME"] = str(home / "dagster_home")
                    play = Play(server, classes, home, seed=options.seed, spark=LONG_RUN)
                    play.run()
                    play.drop()
                    for found in play.findings:
                        print(
                            f"{flavor} --classes {' '.join(map(repr, classes))}: {found}",
                            flush=True,
                        )
                    findings += len(play.findings)
                    commands += play.commands
                    played += len(classes)
                    print(
                        f"{flavor}: {played} classes, {findings} findings, "
                        f"{time.monotonic() - started:.0f} s",
                        flush=True,
                    )
                    shutil.rmtree(home)
    print(
        f"{played} classes, {commands} commands, {findings} findings in "
        f"{time.monotonic() - started:.0f} s"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
