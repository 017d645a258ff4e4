"""The frame of a campaign: seed, budget, processes, report, and the least that shows a finding.

A case is a list of choices, and a choice is any JSON value: a statement of SQL, a setting and its
value, the place of a cut. `tests/campaigns/NAME/campaign.py` holds a `CAMPAIGN`, which makes the
case of a number and plays it; ``python -m tests.campaigns NAME`` does the rest::

    @contextmanager
    def opened(folder: Path) -> Iterator[Play]:
        with started_server(folder) as server:  # once for each process

            def play(case: Case) -> Counter[str]:
                for sql in case:
                    server.try_sql(sql)
                counts = capture_into(folder / "lake")
                found, wanted = rows_of(folder / "lake"), server.rows()
                assert found == wanted, f"a table holds {found}, the server has {wanted}"
                return counts

            yield play

    def case(seed: int, number: int) -> Case:
        chance = random.Random(f"{seed} {number}")
        return [chance.choice(STATEMENTS) for _ in range(chance.randint(1, 40))]

    CAMPAIGN = Campaign("whoever_wrote_it", case, opened)

and its sample in the suite is ``sample(CAMPAIGN, seed=1, count=20, folder=tmp_path)``.

Rules:
- The seed and the number decide a case; nothing else does. So a campaign is the same however many
  processes play it, and a budget of minutes plays the first so many of the same cases.
- What a play raises is its finding. Findings of one kind differ in numbers only: its first line,
  and the class of what was raised. Each kind is counted, and its first is shrunk.
- A play must take any part of a case: shrinking leaves choices out. What then makes no sense is
  passed over, and is no finding.
- A process that dies or does not come back is a finding too; it is told by its number, not shrunk.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import re
import shlex
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, TypeAlias

Case: TypeAlias = list[Any]
Play: TypeAlias = Callable[[Case], Counter[str]]
"""Plays a case, and says what was in it; raises its finding."""

START_S_MAX: Final = 900.0  # kernels compile and servers start
SHRINK_PLAYS_MAX: Final = 300
_MEMORY = Path("/dev/shm")  # where files cost least, if the system has it
_AT_START: Final = -1
_LINE_MAX: Final = 300
_LINES_MAX: Final = 20
_DEATH: Final = "the process "


def _nothing_simpler(_choice: Any) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is played, and how. Its functions are those of a module: processes find them there.

    Attributes:
        name: of the folder in `tests/campaigns`.
        case: the case of a seed and a number.
        opened: what a process needs to play cases, with a folder of its own that goes afterwards.
        simpler: choices that may stand for one, the simplest first; shrinking tries them.
        cases_max: how many different cases there are; without it, as many as the budget has.
        case_s_max: a play that takes longer hangs.
    """

    name: str
    case: Callable[[int, int], Case]
    opened: Callable[[Path], AbstractContextManager[Play]]
    simpler: Callable[[Any], Iterable[Any]] = _nothing_simpler
    cases_max: Callable[[int], int] | None = None
    case_s_max: float = 300.0


@dataclass(frozen=True, slots=True)
class Budget:
    """When a campaign ends; a whole campaign has no limit but its `cases_max`."""

    cases: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """``500`` is cases, ``10m`` minutes, ``all`` everything.

        Raises:
            ValueError: it is none of them.
        """
        if text == "all":
            return cls()
        number = re.fullmatch(r"(\d+(?:\.\d+)?)m", text)
        if number:
            return cls(seconds=60 * float(number[1]))
        return cls(cases=int(text))


@dataclass(slots=True)
class Finding:
    """The findings of one kind.

    Attributes:
        number: the first case that has it.
        told: what its play raised.
        cases: how many have it.
        least: the least that still shows it; None where its process did not survive.
    """

    number: int
    told: str
    cases: int = 1
    least: Case | None = None


@dataclass(slots=True)
class Report:
    """What a campaign came to: how many cases, what was in them, and the findings by kind.

    `cpu_seconds` are those of the plays, in their own processes: other work does not change them.
    """

    campaign: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, number: int, told: str, counts: Counter[str]) -> None:
        self.cases += 1
        self.counts += counts
        if not told:
            return
        known = self.findings.setdefault(kind_of(told), Finding(number, told, 0))
        known.cases += 1
        if number < known.number:
            known.number, known.told = number, told

    def text(self) -> str:
        """The report as it is printed: each finding with the commands that play it alone."""
        lines = []
        for found in sorted(self.findings.values(), key=lambda one: one.number):
            command = f"python -m tests.campaigns {self.campaign}"
            lines.append(f"{found.cases} of {self.cases:,} cases: {found.told}")
            lines.append(f"  first:  {command} --seed {self.seed} --case {found.number}")
            if found.least is not None:
                lines.append(
                    f"  least:  {command} --choices {shlex.quote(json.dumps(found.least))}"
                )
        told = ", ".join(f"{count:,} {name}" for name, count in self.counts.most_common())
        rate = ""
        if self.seconds:
            rate = (
                f" ({60 * self.cases / self.seconds:,.0f} a minute, "
                f"{1000 * self.cpu_seconds / self.cases:.0f} CPU-ms each)"
            )
        lines.append(
            f"{self.campaign}, seed {self.seed}: {self.cases:,} cases in {self.seconds:.0f} s"
            f"{rate}, {len(self.findings)} kinds of findings; {told}"
        )
        return "\n".join(lines)


def campaign_of(name: str) -> Campaign:
    """The campaign of a name.

    Raises:
        ModuleNotFoundError: there is none.
    """
    campaign = importlib.import_module(f"tests.campaigns.{name}.campaign").CAMPAIGN
    assert isinstance(campaign, Campaign)
    return campaign


def kind_of(told: str) -> str:
    """What findings of one kind have in common."""
    return re.sub(r"\d+", "#", told.split("\n", 1)[0])[:200]


def judged(play: Play, case: Case) -> tuple[str, Counter[str]]:
    """What is wrong with a case, empty if nothing is; and what was in it."""
    try:
        return "", play(case)
    except Exception as error:
        lines = f"{type(error).__name__}: {error}".splitlines()
        return "\n".join(line[:_LINE_MAX] for line in lines[:_LINES_MAX]), Counter()


def sample(campaign: Campaign, *, seed: int, count: int, folder: Path) -> Counter[str]:
    """Play the first cases of a seed in this process; what was in them.

    Raises:
        AssertionError: with the least that shows the first finding.
    """
    report = Report(campaign.name, seed)
    with campaign.opened(folder) as play:
        for number in range(count):
            told, counts = judged(play, campaign.case(seed, number))
            report.add(number, told, counts)
            if told:
                _shrink_first(campaign, report, play)
                raise AssertionError(report.text())
    return report.counts


def shrunk(campaign: Campaign, play: Play, case: Case, kind: str) -> Case:
    """The least choices found that still show a finding of a kind: fewer, then simpler ones."""
    plays = 0

    def shows(choices: Case) -> bool:
        nonlocal plays
        plays += 1
        told, _counts = judged(play, choices)
        return bool(told) and kind_of(told) == kind

    size = len(case)
    while size >= 1:
        at = 0
        while at < len(case) and plays < SHRINK_PLAYS_MAX:
            fewer = case[:at] + case[at + size :]
            if shows(fewer):
                case = fewer
            else:
                at += size
        size //= 2
    for at in range(len(case)):
        for choice in campaign.simpler(case[at]):
            if plays >= SHRINK_PLAYS_MAX:
                return case
            other = [*case[:at], choice, *case[at + 1 :]]
            if shows(other):
                case = other
                break
    return case


def _shrink_first(campaign: Campaign, report: Report, play: Play) -> None:
    """Shrink the first finding of each kind that a play raises."""
    for kind, found in report.findings.items():
        if found.told.startswith(_DEATH):
            continue
        case = campaign.case(report.seed, found.number)
        told, _counts = judged(play, case)
        if told and kind_of(told) == kind:
            found.least = shrunk(campaign, play, case, kind)


@contextlib.contextmanager
def played(campaign: Campaign) -> Iterator[Play]:
    """What plays a campaign's cases in this process."""
    with (
        tempfile.TemporaryDirectory(
            prefix="cdc-campaign-", dir=_MEMORY if _MEMORY.is_dir() else None
        ) as folder,
        campaign.opened(Path(folder)) as play,
    ):
        yield play


def run(
    campaign: Campaign,
    *,
    seed: int,
    budget: Budget,
    processes: int,
    tell: Callable[[str], None] = lambda _line: None,
) -> Report:
    """Play a campaign in several processes, each of which has every so manyth case, and shrink
    what they find in this one. `tell` is called now and then with how far it is."""
    began_s = time.monotonic()
    end_s = began_s + budget.seconds if budget.seconds is not None else None
    limits = [budget.cases, campaign.cases_max(seed) if campaign.cases_max else None]
    count = min((limit for limit in limits if limit is not None), default=None)
    if count is None and end_s is None:
        raise ValueError(f"{campaign.name} has no last case: give a budget of cases or minutes")
    report = Report(campaign.name, seed)
    context = multiprocessing.get_context("spawn")
    workers = [
        _Worker(context, campaign, seed, range(first, count or 1 << 62, processes), end_s)
        for first in range(processes if count is None else min(processes, count))
    ]
    told_s = began_s
    while workers:
        wait([worker.connection for worker in workers], timeout=0.5)
        for worker in list(workers):
            for number, told, counts, cpu_seconds in worker.received():
                report.cpu_seconds += cpu_seconds
                known = len(report.findings)
                report.add(number, told, counts)
                if len(report.findings) > known:
                    tell(f"case {number}: {told}")
            what = worker.failure()
            if what:
                number = worker.at.value
                if number == _AT_START:
                    raise RuntimeError(f"a process {what} before its first case")
                report.add(number, f"{_DEATH}{what}", Counter())
                rest = range(number + processes, worker.numbers.stop, processes)
                workers[workers.index(worker)] = worker = _Worker(
                    context, campaign, seed, rest, end_s
                )
            if worker.is_done:
                worker.process.join()
                workers.remove(worker)
        if time.monotonic() - told_s > 30:
            told_s = time.monotonic()
            tell(f"{report.cases:,} cases, {told_s - began_s:.0f} s")
    report.seconds = time.monotonic() - began_s
    if report.findings:
        with played(campaign) as play:
            _shrink_first(campaign, report, play)
    return report


class _Worker:
    """A process that plays cases, and tells in shared memory which it is at."""

    def __init__(
        self, context: Any, campaign: Campaign, seed: int, numbers: range, end_s: float | None
    ) -> None:
        self.numbers = numbers
        self.at = context.Value("q", _AT_START, lock=False)
        self.is_done = False
        self._since = context.Value("d", time.monotonic(), lock=False)
        self._case_s_max = campaign.case_s_max
        self._has_hung_up = False
        self.connection: Connection
        self.connection, child = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_work,
            args=(campaign, seed, numbers, end_s, child, self.at, self._since),
            # Not a daemon: a campaign may start servers of its own.
        )
        self.process.start()
        child.close()

    def received(self) -> Iterator[tuple[int, str, Counter[str], float]]:
        """Verdicts that have come."""
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if message is None:
                    self.is_done = True
                    return
                yield message
        except (EOFError, OSError):
            self._has_hung_up = True

    def failure(self) -> str:
        """What became of the process, if it cannot go on."""
        if self.is_done:
            return ""
        if not self.process.is_alive():
            if not self._has_hung_up:
                return ""  # its last words first
            code = self.process.exitcode or 0
            return f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        limit_s = START_S_MAX if self.at.value == _AT_START else self._case_s_max
        if time.monotonic() - self._since.value > limit_s:
            self.process.kill()
            self.process.join()
            return f"hung for {limit_s:.0f} s"
        return ""


def _work(
    campaign: Campaign,
    seed: int,
    numbers: range,
    end_s: float | None,
    connection: Connection,
    at: Any,
    since: Any,
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    with played(campaign) as play:
        for number in numbers:
            if end_s is not None and time.monotonic() > end_s:
                break
            since.value = time.monotonic()
            at.value = number
            began_s = time.process_time()
            verdict = judged(play, campaign.case(seed, number))
            connection.send((number, *verdict, time.process_time() - began_s))
    connection.send(None)
    connection.close()
