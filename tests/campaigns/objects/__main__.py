"""An object store that fails, lies and comes late at each request, and writers that are stopped.

``python -m tests.campaigns.objects [--faults N] [--places N] [--seed S] [--spark]``.

Captures and snapshots into a lake on a real S3 server are played through a proxy that does one
thing wrong at one request (`judge.py`); then two writers share a lake, and one of them is stopped
at a fault point or with a request on its way (`two_writers.py`). With ``--spark`` only the writers
are played: each is Python with a JVM, which are stopped together, and their tables are Spark's.
Exits with 1 if anything is not as it must be; each finding is printed with the options that play it
alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from cdc_pipeline.lake.storage import object_storage
from tests.campaigns.network.conversations import Shop
from tests.campaigns.objects.faulty_store import Fault
from tests.campaigns.objects.judge import Judge, Plays
from tests.campaigns.objects.load_story import LoadStory
from tests.campaigns.objects.story import Story
from tests.campaigns.objects.two_writers import POINTS, TwoWriters
from tests.cluster.gateway import Gateway, running_gateway
from tests.conftest import temporary_database
from tests.servers import Server

_HANGS_S = 600.0
_ANSWER_S = 3.0  # instead of the product's, so that a request without an answer costs little
_WRITERS_LEASE_S = 6
_PAIRS_AT_ONCE = 6  # they wait for leases most of the time


class _Campaign:
    def __init__(self, options: argparse.Namespace, gateway: Gateway, home: Path) -> None:
        self.findings = 0
        self.outcomes: Counter[str] = Counter()
        self._options, self._gateway, self._home = options, gateway, home
        self._began_s = time.monotonic()

    def faults(self) -> None:
        """Play through faults of the store."""
        story = Story.of_seed(self._options.seed, self._home / "one")
        if self._options.story in (None, "capture"):
            self._faults_of("capture", story)
        if self._options.story in (None, "snapshot"):
            with Server("mysql") as server, temporary_database(server) as database:
                self._faults_of("snapshot", LoadStory(Shop.at(server, database), story))

    def _faults_of(self, name: str, story: Plays) -> None:
        options, slowest_s = self._options, 0.0
        judge = Judge(story, self._gateway)
        faults = [options.fault] if options.fault else judge.faults(options.faults, options.seed)
        for fault in faults:
            faulthandler.dump_traceback_later(_HANGS_S, exit=True)
            ended = judge.judge(fault)
            faulthandler.cancel_dump_traceback_later()
            slowest_s = max(slowest_s, ended.took_s)
            outcome = ended.outcome if ended.happened else "did not happen"
            told = f"--story {name} --fault {fault}"
            self._tell(f"{fault.kind} {outcome}", told, ended.finding)
        print(
            f"{name}: {len(judge.requests)} requests, {len(faults)} faults; the slowest play "
            f"{slowest_s:.1f} s; {self._took_s():.0f} s",
            flush=True,
        )

    def writers(self) -> None:
        """Stop one of two writers."""
        options = self._options
        story = Story.of_seed(
            options.seed,
            self._home / "two",
            lease_s=_WRITERS_LEASE_S,
            on_disk=self._gateway.on_disk if options.spark else None,
        )
        pairs = TwoWriters(story, self._gateway, self._home / "cursors")
        places = [options.place] if options.place else [*POINTS, *self._requests_of(pairs)]
        with ThreadPoolExecutor(1 if options.spark else _PAIRS_AT_ONCE) as pool:
            for place, stopped in zip(places, pool.map(pairs.at, places), strict=True):
                outcome = stopped.outcome if stopped.happened else "did not happen"
                self._tell(
                    f"stopped {outcome}",
                    f"{'--spark ' * options.spark}--place {place}",
                    stopped.finding,
                )
        print(f"a writer stopped at {len(places)} places; {self._took_s():.0f} s", flush=True)

    def _requests_of(self, pairs: TwoWriters) -> list[str]:
        """Places at requests of a writer, chosen by the seed."""
        if not self._options.places:
            return []
        requests = range(len(pairs.requests()))
        chosen = random.Random(self._options.seed).sample(
            requests, min(self._options.places, len(requests))
        )
        return [str(number) for number in sorted(chosen)]

    def _tell(self, outcome: str, options: str, finding: str) -> None:
        self.outcomes[outcome] += 1
        if finding:
            self.findings += 1
            print(f"--seed {self._options.seed} {options}: {finding}", flush=True)

    def _took_s(self) -> float:
        return time.monotonic() - self._began_s


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.objects", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=64, help="faults in each story")
    parser.add_argument("--places", type=int, default=40, help="requests to stop a writer at")
    parser.add_argument("--fault", type=Fault.parse, help="one fault only, as a finding names it")
    parser.add_argument("--story", choices=("capture", "snapshot"), help="one story only")
    parser.add_argument("--spark", action="store_true", help="stopped writers only, with Spark")
    parser.add_argument("--place", help="one place of a stopped writer only")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="cdc-objects-") as home,
        running_gateway(Path(home)) as gateway,
        mock.patch.object(object_storage, "ANSWER_S", _ANSWER_S),
    ):
        campaign = _Campaign(options, gateway, Path(home))
        if not options.place and not options.spark:
            campaign.faults()
        if not options.fault and not options.story:
            campaign.writers()
    told = ", ".join(f"{name} {count}" for name, count in sorted(campaign.outcomes.items()))
    print(
        f"seed {options.seed}: {campaign.outcomes.total()} cases, {campaign.findings} findings in "
        f"{time.monotonic() - began_s:.0f} s\n{told}"
    )
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
