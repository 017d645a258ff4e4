"""One history: a server and a pipeline whose clocks jump, each by itself, as a seed says.

Rules:
- It is played in a process whose clock is moved (`MovedClock`): what the product asks for the time
  is the C library.
- Jumps go by a second up to years, to the leap day, to changes of daylight saving time and to 2038,
  forward and back. Once, the server's journal ends at a jump, as at a restart; else it goes on.
- What must hold after each run is in `_check`; after the last one both clocks are right again, and
  the retention has passed.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.cli.status import _show
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CutNotFoundError
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.operations.status import status
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.position.start.lookup import search_by_time
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.telemetry.measures import distance
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.sink.modes.mode_columns import END_COLUMN, SEQ_COLUMN
from cdc_pipeline.sink.read.cuts import find_cut
from cdc_pipeline.source.protocol import Source
from tests.servers import Server
from tests.servers.preload import MovedClock
from tests.support.captures import here, live
from tests.support.memory_sink import MemoryLake, memory_sink

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_S: Final = 86_400
_STEPS_S: Final = (1, 90, 1800, 3600, 7200, _DAY_S, 40 * _DAY_S, 366 * _DAY_S, 4000 * _DAY_S)
_MOMENTS: Final = (
    dt.datetime(2028, 2, 28, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2028, 2, 29, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2027, 3, 28, 0, 59, 59, tzinfo=dt.UTC),  # summer time begins in Europe
    dt.datetime(2026, 10, 25, 0, 59, 59, tzinfo=dt.UTC),  # and ends
    dt.datetime(2026, 4, 4, 14, 59, 59, tzinfo=dt.UTC),  # half an hour, on Lord Howe
    dt.datetime(2026, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2001, 9, 9, 1, 46, 39, tzinfo=dt.UTC),  # the last second of nine digits
)
_LATE_MOMENTS: Final = (
    dt.datetime(2038, 1, 19, 3, 14, 6, tzinfo=dt.UTC),  # 31 bits end
    dt.datetime(2038, 6, 1, tzinfo=dt.UTC),
)
RETENTION: Final = dt.timedelta(days=3)


class History:
    """A database of three tables, a pipeline into tables in memory, and two clocks."""

    def __init__(
        self, seed: int, folder: Path, server: Server, *, server_clock: MovedClock, own: MovedClock
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._server, self._server_clock, self._own = server, server_clock, own
        self._database = f"clocks_{seed}"
        self._changes = 0
        self._keys: set[int] = set()
        # of the cuts that were seen: when each was published, and the latest source time up to it
        self._published: dict[int, int] = {}
        self._latest: dict[int, int] = {}
        self._lake, self._cursors = MemoryLake(), MemoryCursorStore()
        self._set(server_clock, 0)
        self._set(own, 0)
        server.new_session()
        server.execute_all(
            f"CREATE DATABASE `{self._database}`",
            f"USE `{self._database}`",
            *(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, "
                "at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))"
                for table in ("mirror", "changes", "versions")
            ),
        )
        self._config = PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {**live(server), "tls": {"mode": "off"}},
                "tables": {"include": [f"{self._database}.*"]},
                "start": here(server),
                "sink": {"lake_path": folder / "lake", "cut_retention": RETENTION},
                "targets": [
                    {"tables": [f"{self._database}.changes"], "mode": "changelog"},
                    {"tables": [f"{self._database}.versions"], "mode": "history"},
                ],
            }
        )
        self._paths = LakePaths(self._config.sink.lake_path, "shop")
        self._start = Position(server.end_position()[0])
        self._is_ordered = True

    def play(self) -> None:
        """Play it to its end. Raises AssertionError: something does not hold. Raises CdcError: a
        run ended with an error.
        """
        for _ in range(self._random.randint(8, 16)):
            chosen = self._random.random()
            if chosen < 0.35:
                self._jump(self._server_clock, "server's jumps")
                if self._random.random() < 0.8:
                    self._server.flush_journal()
                else:
                    self._is_ordered = False  # what a journal's head does not show
            elif chosen < 0.6:
                self._jump(self._own, "own jumps")
            self._write()
            self._run()
        self._set(self._server_clock, 0)
        self._set(self._own, 0)
        self._run()
        if self._is_ordered:
            self._check_search()
        later_s = int(RETENTION.total_seconds()) + _DAY_S
        for by_s in (later_s, 2 * later_s, 2 * later_s):
            for clock in (self._server_clock, self._own):
                self._set(clock, by_s)
            self._write()
            self._run()
        kept = list_numbers(self._paths.cuts)
        assert len(kept) <= 3, f"cuts whose retention is over stay: {kept}"

    # -- what happens ------------------------------------------------------------------------------

    def _set(self, clock: MovedClock, by_s: int) -> None:
        clock.move(by_s)
        if clock is self._server_clock:
            self._server.new_session()  # a session has its own time of the last statement

    def _jump(self, clock: MovedClock, name: str) -> None:
        moments = _MOMENTS
        if self._server.flavor == "mysql" or clock is self._own:
            moments += _LATE_MOMENTS
        if self._random.random() < 0.4:
            machine_s = time.time() - self._own.by_s
            by_s = int(self._random.choice(moments).timestamp() - machine_s)
        else:
            step_s = self._random.choice(_STEPS_S)
            by_s = clock.by_s + self._random.choice((-1, 1)) * step_s
        latest_s = 11 * 365 * _DAY_S if moments is _MOMENTS else 30 * 365 * _DAY_S
        self._set(clock, max(-25 * 365 * _DAY_S, min(by_s, latest_s)))
        self.counts[name] += 1

    def _write(self) -> None:
        tables = [f"`{self._database}`.{name}" for name in ("mirror", "changes", "versions")]
        for _ in range(self._random.randint(1, 3)):
            self._server.execute("BEGIN")
            for _ in range(self._random.randint(1, 3)):
                key = self._random.randrange(8)
                if key not in self._keys:
                    statement = "INSERT INTO {table} (id, v) VALUES ({key}, {v})"
                    self._keys.add(key)
                elif self._random.random() < 0.3:
                    statement = "DELETE FROM {table} WHERE id = {key}"
                    self._keys.remove(key)
                else:
                    statement = (
                        "UPDATE {table} SET v = {v}, at = CURRENT_TIMESTAMP(6) WHERE id = {key}"
                    )
                self._changes += 1
                for table in tables:
                    self._server.execute(statement.format(table=table, key=key, v=self._changes))
            self._server.execute("COMMIT")
            self.counts["transactions"] += 1

    def _run(self) -> None:
        sink = memory_sink(self._lake, source="shop", config=self._config.sink)
        capture(self._config, cursors=self._cursors, sink=sink)
        self.counts["runs"] += 1
        self._check()

    # -- what must hold ----------------------------------------------------------------------------

    def _check(self) -> None:
        self._check_rows()
        cuts = self._check_retention()
        self._check_told()
        self._check_moments(cuts)

    def _rows(self, table: str) -> list[dict[str, Any]]:
        return self._lake.rows(self._paths.table(f"{self._database}.{table}"))

    def _check_rows(self) -> None:
        """No change is lost, and none is there twice."""
        there = sorted(
            (row[0], row[1])
            for row in self._server.query(f"SELECT id, v FROM {self._database}.mirror")
        )
        mirror = sorted((row["id"], row["v"]) for row in self._rows("mirror"))
        assert mirror == there, f"the mirror has {mirror}, the server {there}"
        changes = self._rows("changes_changelog")
        places = {row[SEQ_COLUMN] for row in changes}
        # an update is a row before it and a row after it
        assert len(places) == self._changes, f"{len(places)} of {self._changes} changes"
        current = sorted(
            (row["id"], row["v"])
            for row in self._rows("versions_history")
            if row[END_COLUMN] is None
        )
        assert current == there, f"the history's current rows are {current}, the server's {there}"

    def _check_retention(self) -> list[Cut]:
        """No cut goes that is younger than the retention by any plausible time of the cuts up to
        the one after it."""
        numbers = list_numbers(self._paths.cuts)
        cuts = [read_cut(self._paths, number) for number in numbers]
        gone = set(self._published) - set(numbers)
        self._published |= {cut.batch_number: cut.published_at_us for cut in cuts}
        now_us = time.time() * 1e6
        oldest_us = now_us - RETENTION.total_seconds() * 1e6
        for number in sorted(gone):
            upto = (at for of, at in self._published.items() if of <= number + 1 and at <= now_us)
            assert max(upto, default=0) < oldest_us, (
                f"cut {number} of {self._published} is gone before its retention is over"
            )
        for number in gone:
            del self._published[number]
        return cuts

    def _check_told(self) -> None:
        """Nothing that is told is negative, and what depends on the server goes by its clock."""
        now = status(self._config, cursors=self._cursors)
        assert now.lag_s >= 0 or now.lag_s == -1, f"a lag of {now.lag_s} s"
        _show(now)
        cursor = self._cursors.cursor
        assert cursor is not None
        kept_s = 10 * _DAY_S
        self._server.execute(f"SET GLOBAL binlog_expire_logs_seconds = {kept_s}")
        away = distance(self._config, cursor, source_time_us=now.source_time_us)
        self._server.execute("SET GLOBAL binlog_expire_logs_seconds = 0")
        assert away.lag_s == 0, f"a lag of {away.lag_s} s at the end of the log"
        assert away.headroom_s is not None
        assert kept_s - 60 <= away.headroom_s <= kept_s, f"a headroom of {away.headroom_s} s"

    def _check_moments(self, cuts: list[Cut]) -> None:
        """As of a time: the last cut before the first one of all whose time is later."""
        for cut in cuts:
            before_us = self._latest.get(cut.batch_number - 1, -1)
            self._latest.setdefault(cut.batch_number, max(before_us, cut.source_time_us))
        times = sorted({self._latest[cut.batch_number] for cut in cuts} - {-1})
        for asked_us in (at_us - back for at_us in times for back in (0, 1)):
            moment = _EPOCH + dt.timedelta(microseconds=asked_us)
            earlier = [
                cut.batch_number for cut in cuts if self._latest[cut.batch_number] <= asked_us
            ]
            try:
                found = find_cut(self._paths, moment).batch_number
            except CutNotFoundError:
                found = None
            expected = earlier[-1] if earlier else None
            assert found == expected, f"as of {moment}: cut {found}, not {expected}"
            self.counts["moments"] += 1

    def _check_search(self) -> None:
        """A start by time is at the first transaction that is as late, in the order of the log."""
        with closing(build_source(self._config)) as source:
            grouping = TransactionPass()
            begins: list[tuple[str, int]] = []
            times: list[int] = []
            with closing(cast(Any, source.chunks(self._start, source.end_position()))) as chunks:
                for chunk in chunks:
                    for row in grouping.apply(chunk).starts:
                        begins.append((chunk.journal, int(chunk.events["offset"][row])))
                        times.append(int(chunk.events["commit_ts_us"][row]))
            for t_us in self._random.sample(times, min(6, len(times))):
                first = next(at for at, of in zip(begins, times, strict=True) if of >= t_us)
                found = search_by_time(_From(source, self._start.journal), t_us=t_us)
                place = None if found is None else (found.journal, found.offset)
                assert place == first, f"a start at {t_us} is {place}, not {first}"
                self.counts["starts"] += 1


class _From:
    def __init__(self, source: Source, journal: str) -> None:
        self._source = source
        self._journal = journal

    def journals(self, *, since: Position | None = None) -> list[JournalInfo]:
        listed = self._source.journals()
        names = [info.journal for info in listed]
        return listed[names.index(self._journal) :]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def play(
    seed: int, folder: Path, server: Server, *, server_clock: MovedClock, own: MovedClock
) -> Counter[str]:
    history = History(seed, folder, server, server_clock=server_clock, own=own)
    try:
        history.play()
    finally:
        server_clock.move(0)
        own.move(0)
        server.new_session()
        server.execute(f"DROP DATABASE IF EXISTS `clocks_{seed}`")
    return history.counts
