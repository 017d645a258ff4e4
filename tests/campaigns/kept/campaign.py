"""Journals that runs keep, on servers that purge them.

Each case has a server of its own options, a pipeline that keeps journals, and runs that are killed
at any fault point, or where the power goes as a journal is written, between changes, new journals,
restarts and purges of all that is sealed. What is kept must be the server's bytes after each of
these. At the end a pipeline that has read nothing yet reads all from the first journal on: its
tables, and those of the other, must be SELECT's, and the story of a row must end with it.

Cases are played by a process that the shim of the campaign of disks is loaded into: after a power
cut a strict disk may hold whatever was not waited for, or not.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.operations.journals import kept_logs
from cdc_pipeline.operations.story import open_story
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.source.kept_journals import KeptJournals, logs_of
from cdc_pipeline.source.live import journal_keeper
from tests.campaigns.disk.disk import Disk
from tests.campaigns.disk.power import PowerCut
from tests.campaigns.frame import SERVERS, Campaign, Case, Play, flavors, fresh, judged
from tests.servers import Server
from tests.support.captures import live
from tests.support.comparison import lake_rows, server_rows
from tests.support.kills import Killed, end_run
from tests.support.memory_shop import MemoryShop
from tests.support.memory_sink import memory_sink
from tests.support.workload import COLUMNS, Workload, create_tables

_IN_USE: Final = 21  # the byte of the head that tells that a server still writes the journal
_OPTIONS: Final[dict[str, list[dict[str, str]]]] = {
    "mysql": [
        {},
        {"binlog_checksum": "NONE"},
        {"binlog_transaction_compression": "ON"},
        {"binlog_checksum": "NONE", "binlog_transaction_compression": "ON"},
    ],
    "mariadb": [{}, {"binlog_checksum": "NONE"}, {"log_bin_compress": "ON"}],
}
_STEPS: Final = (
    *["write"] * 4,
    *["run"] * 2,
    *["kill"] * 2,
    *["kill_keeping"] * 3,
    *["cut_power"] * 3,
    *["flush"] * 2,
    "restart",
    "purge",
)


def _case(seed: int, number: int, *, flavor: str, steps: int) -> Case:
    chance = random.Random(f"{seed} {number}")
    chosen = flavors(flavor)
    of = chosen[number % len(chosen)]
    options = chance.choice(_OPTIONS[of])
    case: Case = [["world", of, options, chance.random() < 0.5, chance.choice([2000, 50_000])]]
    for _ in range(steps):
        case.append([chance.choice(_STEPS), chance.randint(1, 12)])
    return case


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    disk = _disk(folder)
    with subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, **disk.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def play(case: Case) -> Counter[str]:
            assert child.stdin is not None
            assert child.stdout is not None
            print(json.dumps(case), file=child.stdin, flush=True)
            told, counts = json.loads(child.stdout.readline())
            assert not told, told
            return Counter(counts)

        yield play
        child.stdin.close()


def _main(folder: Path) -> None:
    """Play each case of a line of the input, and print what is wrong with it and what was in it."""
    del os.environ["LD_PRELOAD"]  # servers are not watched
    disk = _disk(folder)

    def play(case: Case) -> Counter[str]:
        return _played(case, folder, disk)

    for line in sys.stdin:
        print(json.dumps(judged(play, json.loads(line))), flush=True)


def _disk(folder: Path) -> Disk:
    return Disk(folder / "kept", folder / "disk")


def _played(case: Case, folder: Path, disk: Disk) -> Counter[str]:
    counts: Counter[str] = Counter()
    if case and case[0][0] == "world":
        _name, flavor, options, compress, write_bytes = case[0]
        with (
            fresh(folder) as home,
            Server(flavor, options) as server,
            patch.object(journal_keeper, "WRITE_BYTES", write_bytes),
        ):
            world = _World(server, home, disk, compress=compress)
            with closing(world):
                for name, number in case[1:]:
                    counts[name] += 1
                    getattr(world, name)(number)
                    world.check()
                counts += world.end()
    return counts


class _World:
    def __init__(self, server: Server, folder: Path, disk: Disk, *, compress: bool) -> None:
        self.server, self.folder, self.copies = server, folder, folder / "server"
        self.disk, self._before = disk, folder / "before"
        server.execute("CREATE DATABASE shop")
        create_tables(server, "shop")
        self.workload = Workload(server, "shop", seed=1)
        shutil.rmtree(disk.root, ignore_errors=True)
        disk.root.mkdir()
        self.keep = {"path": str(disk.root), "compress": compress}
        self.shop = self._shop("lake")
        self.killed, self.struck, self.sessions = 0, 0, 1

    def _shop(self, lake: str) -> MemoryShop:
        document = {
            "name": "shop",
            "source": live(self.server) | {"keep_journals": self.keep},
            "tables": {"include": ["shop.*"]},
            "start": "earliest",
            "sink": {"lake_path": self.folder / lake},
        }
        return MemoryShop(PipelineConfig.model_validate(document))

    def write(self, number: int) -> None:
        self.workload.run(number)

    def flush(self, _number: int) -> None:
        self.server.flush_journal()

    def restart(self, _number: int) -> None:
        self.workload.close()
        self.server.restart()
        self.sessions += 1
        self.workload = Workload(self.server, "shop", seed=self.sessions)

    def close(self) -> None:
        self.workload.close()

    def run(self, _number: int, shop: MemoryShop | None = None) -> None:
        shop = shop or self.shop
        sink = memory_sink(shop.lake, source="shop", config=shop.config.sink)
        capture(shop.config, cursors=shop.cursors, sink=sink)

    def kill_keeping(self, number: int) -> None:
        self.kill(number, "journal_")

    def kill(
        self, number: int, of: str = "", *, watched: Callable[[], None] = lambda: None
    ) -> None:
        left = number

        def reached(point: str) -> None:
            nonlocal left
            left -= point.startswith(of)
            if not left and point.startswith(of):
                self.killed += 1
                watched()
                end_run()

        with listening(reached), suppress(Killed):
            self.run(number)

    def cut_power(self, number: int) -> None:
        """The disk as it may be behind a cut takes the place of what is kept."""
        root, live, into = self.disk.root, self.folder / "live", self.folder / "struck"
        for place in (self._before, live, into):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(root, self._before)
        self.disk.clear()

        def strike() -> None:
            shutil.copytree(root, live)
            cut = PowerCut(root, self._before)
            cut.take(self.disk.calls())
            cut.check(live)
            cut.strike(live, self.disk.grave, into, random.Random(number))
            self.struck += 1

        with self.disk.armed():
            self.kill(1 + number % 4, "journal_", watched=strike)
        if into.exists():
            shutil.rmtree(root)
            shutil.copytree(into, root)

    def purge(self, _number: int) -> None:
        """What is sealed: of anything else, nobody but the server knows it."""
        sealed = [one.name for one in self.kept if one.is_sealed]
        if sealed:
            self._copied()
            later = [file.name for file in self.server.journals() if file.name > sealed[-1]]
            self.server.purge_to(later[0])

    @property
    def _logs(self) -> list[KeptJournals]:
        place = self.disk.root / "shop"
        return [KeptJournals(folder) for folder in logs_of(place)] if place.is_dir() else []

    @property
    def kept(self) -> list[Any]:
        return [journal for log in self._logs for journal in log.journals()]

    def _copied(self) -> None:
        self.server.copy_journals(self.copies)

    def check(self) -> None:
        self._copied()
        assert len(self._logs) <= 1, "the log was not reset"
        for log in self._logs:
            for journal in log.journals():
                copy = log.copy(journal, self.folder)
                ours, theirs = (
                    copy.read_bytes(),
                    bytearray((self.copies / journal.name).read_bytes()),
                )
                copy.unlink()
                if not journal.is_sealed:
                    theirs[_IN_USE] &= 0xFE
                    theirs = theirs[: len(ours)]
                assert ours == bytes(theirs), f"{journal.name} is not the server's"

    def end(self) -> Counter[str]:
        self.write(3)
        self.flush(0)
        self.run(0)
        self.check()
        self.purge(0)
        self.write(3)
        self.run(0)
        listed = kept_logs(self.shop.config, verify=True)
        assert listed.is_whole, listed
        late = self._shop("late")
        self.run(0, late)
        for table, columns in COLUMNS.items():
            wanted = server_rows(self.server, "shop", table, columns)
            for shop in (self.shop, late):
                lake = shop.config.sink.lake_path
                found = lake_rows(shop.lake, lake, "shop", table, columns)
                assert found == wanted, f"{table}: {len(found)} rows of {len(wanted)}"
        told = self._tell()
        shutil.rmtree(self.copies)
        sealed = sum(journal.is_sealed for journal in listed.journals)
        return Counter(killed=self.killed, struck=self.struck, sealed=sealed, stories=told)

    def _tell(self) -> int:
        """The last change of each of some rows has its values."""
        rows = self.server.query("SELECT code, text FROM shop.label ORDER BY code LIMIT 3")
        with open_story(self.shop.config, "shop.label", cursors=MemoryCursorStore()) as reader:
            for code, text in rows:
                story = reader.story({"code": code})
                assert not story.holes, story.holes
                after = story.changes[-1].after
                assert after is not None, f"{code} is there, and its story ends without it"
                assert (after["code"], after["text"]) == (code, text), story.changes[-1]
        return len(rows)


CAMPAIGN = Campaign(
    "kept",
    _case,
    _opened,
    needs=(*SERVERS, "C compiler"),
    options={"flavor": "", "steps": 24},
    budget="10",
    shrink_plays_max=20,
)

if __name__ == "__main__":
    _main(Path(sys.argv[1]))
