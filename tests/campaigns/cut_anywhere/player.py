"""Play a recorded story in a way of its own, and compare the lake with that of one plain run.

A way is a case of choices (`tests/campaigns/frame.py`):

- ``["play", LOG, STORY]``: what is played, ``*`` all of a log's stories one after the other.
  Without it nothing is.
- ``["chunk", N]``: a chunk ends before the N-th event of the journals. ``["chunk_bytes", N]``: so
  much is read at a time.
- ``["short", N]``: a transaction in two chunks leaves whole up to N events.
- ``["get", N]``: a get ends before the N-th event that is put in a run. ``["batch", N]``: so does a
  batch, or at the next end of a transaction.
- ``["stop", N]``: a run of N transactions. ``["kill", POINT, N]``: a run that is killed when it
  reaches a fault point for the N-th time. Runs follow each other as the choices do; a last one goes
  to the end.
- ``["rebuild", N]``: a run of N transactions, and then all tables whose creation the log has are
  rebuilt from it, while the run goes on by one transaction.
- ``["segments", BYTES, WAVE]``: executors read segments of at least so many bytes, in batches of so
  many.
- ``["set", SETTING, VALUE]``: a setting of the configuration, as a path with dots.

Rules:
- The rows of one plain run must be the server's own SELECT. Any other way must end with the same
  rows in all targets: the table itself, and the changelog of all of its changes, with their seq.
- It must end with the same cursor and the same open XA transactions, and nothing suspended.
- Where a get ends does not depend on how threads take turns: a get waits until it is full.
"""

from __future__ import annotations

import functools
import gc
import json
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.config.pipeline_config import PipelineConfig, TransactionsBoundConfig
from cdc_pipeline.errors import SnapshotError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.operations.backfill.rebuild import rebuild
from cdc_pipeline.run.capture.commit import Committer
from cdc_pipeline.run.capture.segments import survey
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.source.archive import archive
from cdc_pipeline.source.archive.files import read_head, read_journal
from cdc_pipeline.store.ranges import Batch
from cdc_pipeline.store.ring import RingStore
from cdc_pipeline.transaction import buffer
from tests.campaigns.cut_anywhere.record import ELSEWHERE, LOGS
from tests.campaigns.frame import Case
from tests.support.kills import AtPoint, Killed, close_files_in, end_run
from tests.support.memory_modes import Row
from tests.support.memory_shop import MemoryShop

ALL: Final = "*"
LOG_NAMES: Final = ("mysql", "mysql-anonymous", "mariadb")
_NO_LIMIT: Final = 1 << 40


@dataclass(frozen=True)
class Story:
    """A part of a log that can be played alone. `directory`: its journals; `places`: journal and
    offset of each event in them, in the order of the log; `events`: how many are put into the
    store, with those that were unpacked; `transactions`: how many there are; `expected`: the
    server's rows, by table.
    """

    directory: Path
    places: tuple[tuple[str, int], ...]
    events: int
    transactions: int
    expected: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Outcome:
    """What a way ends with. `rows`: of each target; `state`: the cursor's place, the xids of open
    XA transactions, and what is suspended.
    """

    rows: dict[str, list[Row]]
    state: tuple[Any, ...]


class Player:
    def __init__(self, folder: Path) -> None:
        self.stories: dict[tuple[str, str], Story] = {}
        self._folder = folder
        self._outcomes: dict[tuple[str, str], Outcome] = {}
        for log in LOG_NAMES:
            self._unpack(log)

    def _unpack(self, log: str) -> None:
        folder = self._folder / "logs" / log
        with tarfile.open(LOGS / f"{log}.tar.xz") as packed:
            packed.extractall(folder, filter="data")
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        everything = folder / "everything"
        everything.mkdir()
        for story in expected:
            (file,) = (folder / story).iterdir()
            (everything / file.name).hardlink_to(file)
        rows = {
            story: {f"{story}.{table}": found for table, found in tables.items()}
            for story, tables in expected.items()
        }
        for story, tables in rows.items():
            self.stories[log, story] = _story(folder / story, tables)
        self.stories[log, ALL] = _story(
            everything, {name: found for tables in rows.values() for name, found in tables.items()}
        )

    def play(self, case: Case) -> Counter[str]:
        """Play a case; what was in it. Raises AssertionError: the lake is not that of a plain run,
        or the plain one's not the server's. Raises CdcError: a run failed.
        """
        played = next((choice for choice in case if choice[0] == "play"), None)
        if played is None:
            return Counter()
        which = played[1], played[2]
        if which not in self._outcomes:
            self._outcomes[which] = self._plain(which)
        counts: Counter[str] = Counter()
        outcome = self._play(self.stories[which], case, counts)
        _compare(outcome, self._outcomes[which])
        return counts

    def _plain(self, which: tuple[str, str]) -> Outcome:
        story = self.stories[which]
        outcome = self._play(story, [], Counter())
        for table, expected in story.expected.items():
            found = [
                {name: value for name, value in row.items() if not name.startswith("_")}
                for row in outcome.rows.get(table, [])
            ]
            assert _as_set(found) == _as_set(expected), (
                f"a plain run of {which} leaves {table} with {found}, SELECT gives {expected}"
            )
        return outcome

    def _play(self, story: Story, case: Case, counts: Counter[str]) -> Outcome:
        folder = self._folder / "play"
        try:
            return _Way(story, case, folder, counts).play()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _Way:
    def __init__(self, story: Story, case: Case, folder: Path, counts: Counter[str]) -> None:
        self._story = story
        self._case = case
        self._folder = folder
        self._counts = counts
        self._shop = MemoryShop(_config(story, case, folder))
        chunks = [story.places[at % len(story.places)] for at in self._numbers("chunk")]
        self._chunk_ends = sorted(set(chunks))
        self._chunk_bytes = next(iter(self._numbers("chunk_bytes")), None)
        self._batch_ends = sorted(set(self._numbers("batch")))
        self._get_ends = sorted({*self._numbers("get"), *self._batch_ends})
        self._got = 0

    def _numbers(self, kind: str) -> list[int]:
        return [choice[1] for choice in self._case if choice[0] == kind]

    def play(self) -> Outcome:
        with ExitStack() as patches:
            if self._chunk_ends or self._chunk_bytes:
                patches.enter_context(patch.object(archive, "read_journal", self._read_journal))
            for events in self._numbers("short"):
                patches.enter_context(patch.object(buffer, "SHORT_EVENTS_MAX", events))
            if self._get_ends:
                get = RingStore.get
                patches.enter_context(
                    patch.object(
                        RingStore,
                        "get",
                        lambda ring, size, **rest: self._get(get, ring, size, **rest),
                    )
                )
            if self._batch_ends:
                is_due = Committer.is_due
                patches.enter_context(
                    patch.object(Committer, "is_due", lambda of: self._is_due(of, is_due))
                )
            parallel = None
            for choice in self._case:
                if choice[0] == "segments":
                    patches.enter_context(patch.object(survey, "SEGMENT_BYTES", choice[1]))
                    parallel = Parallel(stretch_bytes_min=0, wave_bytes=choice[2])
            self._runs(parallel)
        return self._outcome()

    def _runs(self, parallel: Parallel | None) -> None:
        for choice in self._case:
            if choice[0] == "stop":
                self._run(choice[1], None)
            elif choice[0] == "kill":
                self._killed(choice[1], choice[2], parallel)
            elif choice[0] == "rebuild":
                self._rebuild(choice[1])
        self._run(None, parallel)

    def _killed(self, point: str, occurrence: int, parallel: Parallel | None) -> None:
        gc.freeze()  # a dead run's files are looked for among its own objects alone
        with suppress(Killed), listening(AtPoint(point, end_run, occurrence)):
            self._run(None, parallel)
        self._counts["kills"] += 1
        close_files_in(self._folder)
        gc.unfreeze()

    def _rebuild(self, transactions: int) -> None:
        shop = self._shop
        self._run(transactions, None)
        config = shop.config.model_copy(update={"bound": TransactionsBoundConfig(transactions=1)})
        targets = shop.last_cut().cursor.targets.values()
        with pytest.MonkeyPatch.context() as patches:
            shop.take_place(patches)
            for table in sorted({name for state in targets for name in state.source_names}):
                with suppress(SnapshotError):  # its creation is not in the log
                    done = rebuild(config, tables=[table], cursors=shop.cursors)
                    self._counts[done.outcome] += 1

    def _run(self, transactions: int | None, parallel: Parallel | None) -> None:
        self._got = 0
        self._counts["runs"] += 1
        report = self._shop.run(transactions, parallel=parallel)
        self._counts["batches"] += report.batches
        if report.parallel is not None and report.parallel.tasks:
            self._counts["segments"] += report.parallel.tasks

    # -- boundaries --------------------------------------------------------------------------------

    def _read_journal(
        self, file: Path, *, offset: int = 4, stop_offset: int | None = None, **rest: Any
    ) -> Iterator[Chunk]:
        if self._chunk_bytes is not None:
            rest["chunk_bytes"] = self._chunk_bytes
        last = _NO_LIMIT if stop_offset is None else stop_offset
        ends = [at for journal, at in self._chunk_ends if journal == file.name]
        for stop in [*(at for at in ends if offset < at < last), stop_offset]:
            if offset > 4 and rest.get("journal_format") is None:
                rest["journal_format"] = read_head(file).journal_format
            yield from read_journal(file, offset=offset, stop_offset=stop, **rest)
            offset = stop or 0
            self._counts["chunks"] += 1

    def _get(self, get: Any, ring: RingStore, size: int, **rest: Any) -> Batch:
        got = ring.sequences[2] + 1
        ends = [at for at in self._get_ends if at > got]
        batch: Batch = get(ring, ends[0] - got if ends else _NO_LIMIT, **rest)
        self._got = ring.sequences[2] + 1
        self._counts["gets"] += 1
        return batch

    def _is_due(self, committer: Committer, is_due: Any) -> bool:
        if not is_due(committer) or not any(at <= self._got for at in self._batch_ends):
            return False
        self._batch_ends = [at for at in self._batch_ends if at > self._got]
        return True

    def _outcome(self) -> Outcome:
        cut, cursor = self._shop.last_cut(), self._shop.cursors.cursor
        assert cursor is not None
        rows = {name: self._shop.rows(name) for name in cut.tables}
        place = cursor.position
        return Outcome(
            rows,
            (
                (place.journal, place.offset, cursor.gtid_set),
                sorted(of.xid for of in cursor.open_xa),
                self._shop.suspended(),
            ),
        )


def _config(story: Story, case: Case, folder: Path) -> PipelineConfig:
    document: dict[str, Any] = {
        "name": "shop",
        "source": {"kind": "archive", "directory": story.directory},
        "tables": {"include": ["*.*"], "exclude": [f"{ELSEWHERE}.*"]},
        "targets": [
            {"tables": ["*.*"]},
            {"tables": ["*.*"], "mode": "changelog", "name": "{schema}.{table}_log"},
        ],
        "schema_changes": {"drop_column": "apply"},
        "store": {"directory": folder / "store"},
        "sink": {"lake_path": folder / "lake"},
    }
    kinds = {choice[0] for choice in case}
    if kinds & {"get", "batch"}:
        document["store"]["batch_mode"] = "itemsize"
    if "batch" in kinds:
        document["batch"] = {"merge_rows": 1}
    for choice in case:
        if choice[0] == "set":
            *path, name = choice[1].split(".")
            section = document
            for part in path:
                section = section.setdefault(part, {})
            value = choice[2]
            section[name] = value.format(folder=folder) if isinstance(value, str) else value
    return PipelineConfig.model_validate(document)


@functools.cache
def measured() -> dict[tuple[str, str], Story]:
    """The stories, for whoever makes cases; their journals are gone."""
    with tempfile.TemporaryDirectory() as folder:
        return Player(Path(folder)).stories


def _story(directory: Path, expected: dict[str, list[dict[str, Any]]]) -> Story:
    places, events, transactions = [], 0, 0
    for file in sorted(directory.iterdir()):
        passing = TransactionPass()
        for chunk in read_journal(file):
            passing.step(chunk)
            events += len(chunk.events)
            own = chunk.events["parent"] < 0
            places += [(file.name, int(offset)) for offset in chunk.events["offset"][own]]
        transactions += passing.transactions
    return Story(directory, tuple(places[1:]), events, transactions, expected)


def _compare(found: Outcome, wanted: Outcome) -> None:
    assert found.state[2] == {}, f"suspended: {found.state[2]}"
    for name, rows in wanted.rows.items():
        there, other = Counter(map(repr, rows)), Counter(map(repr, found.rows.get(name, [])))
        missing, more = there - other, other - there
        told = [*(f"- {row}" for row in missing), *(f"+ {row}" for row in more)]
        assert not told, "\n".join(
            [f"{len(missing)} rows are missing, {len(more)} wrong or too many in {name}:", *told]
        )
    assert found.state == wanted.state, f"another end:\n{found.state}\n{wanted.state}"
    assert found.rows.keys() == wanted.rows.keys(), f"other tables: {sorted(found.rows)}"


def _as_set(rows: Sequence[dict[str, Any]]) -> Counter[str]:
    return Counter(
        json.dumps({name: _plain_value(name, value) for name, value in row.items()}, sort_keys=True)
        for row in rows
    )


def _plain_value(name: str, value: Any) -> Any:
    return json.loads(value) if name == "doc" and value is not None else value
