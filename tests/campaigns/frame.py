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
- Options (``key=value``) choose among cases; a play sees its case alone, so `--choices` needs none.
- A campaign names what it needs installed (`NEEDS`); the command installs it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import multiprocessing
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import venv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, get_args

from tests.servers import Flavor

Case: TypeAlias = list[Any]
Name = TypeVar("Name", bound=str)
Play: TypeAlias = Callable[[Case], Counter[str]]
"""Plays a case, and says what was in it; raises its finding."""

START_S_MAX: Final = 900.0  # kernels compile and servers start
NEEDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "mysql": ("tests.servers.install", "mysql"),
        "mariadb": ("tests.servers.install", "mariadb"),
        "jars": ("cdc_pipeline.sink.spark",),
        "S3 jars": ("cdc_pipeline.sink.spark", "--with", "s3"),
        "S3 server": ("tests.servers.install", "s3"),
        "C compiler": ("tests.campaigns.disk.disk",),
    }
)
"""What a campaign may need, and the module with its arguments that installs or finds it."""
SERVERS: Final = ("mysql", "mariadb")
KEEP: Final = "CDC_CAMPAIGN_KEEP"
"""Variable of the environment: a folder where all stays that plays leave."""
_MEMORY = Path("/dev/shm")  # where files cost least, if the system has it
_ELSEWHERE: Final = {"model": "tests.model.campaign", "mutations": "tests.mutations.campaign"}
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdc_pipeline"
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
        cases_max: how many different cases a seed has; without it, as many as the budget has.
        case_s_max: a play that takes longer hangs.
        needs: names in `NEEDS`.
        options: their defaults; `case` and `cases_max` get them by name.
        budget: what is played unless a person says otherwise.
        processes_max: that are of use at once.
        process_cases: after which a process makes room for a new one.
        memory_bytes_max: by which the address space of a process may grow once it is open.
        shrink_plays_max: 0 where a play is too dear to be repeated.
        on_disk: its files are too large for memory.
    """

    name: str
    case: Callable[..., Case]
    opened: Callable[[Path], AbstractContextManager[Play]]
    simpler: Callable[[Any], Iterable[Any]] = _nothing_simpler
    cases_max: Callable[..., int] | None = None
    case_s_max: float = 300.0
    needs: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: str = "1m"
    processes_max: int = 1 << 10
    process_cases: int = 1 << 62
    memory_bytes_max: int = 0
    shrink_plays_max: int = 300
    on_disk: bool = False

    def with_options(self, pairs: Sequence[str]) -> Campaign:
        """The campaign with options of a person, each as ``key=value``. Raises ValueError: it has
        no such option, or a value is not of its default's type.
        """
        options = dict(self.options)
        for pair in pairs:
            name, _, text = pair.partition("=")
            if name not in options:
                has = ", ".join(f"{key}={value}" for key, value in options.items()) or "none"
                raise ValueError(f"{self.name} has no option {name}; its options are {has}")
            default = options[name]
            if isinstance(default, bool) and text not in ("true", "false"):
                raise ValueError(f"{name} is true or false, not {text}")
            options[name] = text == "true" if isinstance(default, bool) else type(default)(text)
        bound = replace(self, options=options, case=functools.partial(self.case, **options))
        if self.cases_max is not None:
            bound = replace(bound, cases_max=functools.partial(self.cases_max, **options))
        return bound

    def case_count(self, seed: int, budget: Budget, first: int = 0) -> int | None:
        """How many cases are played from the first on; None if time alone ends them. Raises
        ValueError: none, or there is no end.
        """
        limits = [budget.cases, self.cases_max(seed) - first if self.cases_max else None]
        count = min((limit for limit in limits if limit is not None), default=None)
        if count is None and budget.seconds is None:
            raise ValueError(f"{self.name} has no last case: give a budget of cases or minutes")
        if count is not None and count < 1:
            has = ", ".join(f"{key}={value}" for key, value in self.options.items())
            raise ValueError(f"{self.name} has no case from {first} on ({has or 'no options'})")
        return count


@dataclass(frozen=True, slots=True)
class Budget:
    """When a campaign ends; a whole campaign has no limit but its `cases_max`."""

    cases: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """``500`` is cases, ``10m`` minutes, ``all`` everything. Raises ValueError: it is none of
        them.
        """
        if text == "all":
            return cls()
        number = re.fullmatch(r"(\d+(?:\.\d+)?)m", text)
        if number:
            return cls(seconds=60 * float(number[1]))
        return cls(cases=int(text))


@dataclass(slots=True)
class Finding:
    """The findings of one kind. `number`: the first case that has it; `told`: what its play raised;
    `cases`: how many have it; `least`: the least that still shows it; None where its process did
    not survive.
    """

    number: int
    told: str
    cases: int = 1
    least: Case | None = None


@dataclass(slots=True)
class Report:
    """What a campaign came to: how many cases, what was in them, and the findings by kind.

    `cpu_seconds` are those of the plays, in their own processes: other work does not change them.
    `grown_bytes` is the most by which a process has grown after it was open.
    """

    campaign: str
    seed: int
    options: Sequence[str] = ()
    cases: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    grown_bytes: int = 0
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
        lines = []
        for found in sorted(self.findings.values(), key=lambda one: one.number):
            command = f"python -m tests.campaigns {self.campaign}"
            options = "".join(f" {shlex.quote(pair)}" for pair in self.options)
            lines.append(f"{found.cases} of {self.cases:,} cases: {found.told}")
            lines.append(f"  first:  {command} --seed {self.seed} --case {found.number}{options}")
            if found.least is not None:
                lines.append(
                    f"  least:  {command} --choices {shlex.quote(json.dumps(found.least))}"
                )
        told = ", ".join(f"{count:,} {name}" for name, count in self.counts.most_common())
        rate = ""
        if self.cases:
            rate = (
                f" ({60 * self.cases / max(self.seconds, 0.1):,.0f} a minute, "
                f"{1000 * self.cpu_seconds / self.cases:.0f} CPU-ms each)"
            )
        lines.append(
            f"{self.campaign}, seed {self.seed}: {self.cases:,} cases in {self.seconds:.0f} s"
            f"{rate}, {len(self.findings)} kinds of findings, a process grew by "
            f"{self.grown_bytes / 2**20:.0f} MiB at most; {told}"
        )
        return "\n".join(lines)


def campaign_of(name: str) -> Campaign:
    module = importlib.import_module(_ELSEWHERE.get(name, f"tests.campaigns.{name}.campaign"))
    assert isinstance(module.CAMPAIGN, Campaign)
    return module.CAMPAIGN


def names() -> list[str]:
    folders = (file.parent.name for file in Path(__file__).parent.glob("*/campaign.py"))
    return sorted([*folders, *_ELSEWHERE])


def install(campaign: Campaign) -> None:
    """Install or find what a campaign needs. Raises subprocess.CalledProcessError: it cannot be
    had; what was tried has said why.
    """
    for need in campaign.needs:
        subprocess.run([sys.executable, "-m", *NEEDS[need]], check=True, stdout=sys.stderr)


def check_bounds() -> None:
    """Have kernels that this process and its children compile check bounds."""
    os.environ["NUMBA_BOUNDSCHECK"] = "1"
    # The switch is not part of numba's key: these kernels have a cache of their own.
    os.environ["NUMBA_CACHE_DIR"] = str(_CACHE / "numba-bounds")


def assert_bounds_checks() -> None:
    """Raise RuntimeError if bounds checks are wanted and the kernels lack them.

    Kernels from a cache without bounds checks would read beyond their arrays in silence.
    """
    if os.environ.get("NUMBA_BOUNDSCHECK") != "1":
        return
    import numpy as np

    from cdc_pipeline.binlog.events.gtid_kernel import gtid_commit_us

    try:
        gtid_commit_us(np.zeros(1, np.uint8), 0, 60, 33)
    except IndexError:
        return
    raise RuntimeError("the kernels have no bounds checks: give them an empty NUMBA_CACHE_DIR")


def address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def locked_environment(folder: Path, requirements: Path) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--require-hashes", "-r", str(requirements)], check=True)
    return python


def named(option: str, known: Iterable[Name]) -> tuple[Name, ...]:
    """All, or the one that an option names. Raises ValueError: it names none of them."""
    found = tuple(name for name in known if option in ("", name))
    if not found:
        raise ValueError(f"{option} is none of {', '.join(known)}")
    return found


def flavors(flavor: str = "") -> tuple[Flavor, ...]:
    return named(flavor, get_args(Flavor))


def distinct(seed: int, number: int) -> int:
    """One number for a seed and a number, where a campaign's cases have numbers alone."""
    return (seed - 1) * 10_000_000 + number


class OnDemand(ExitStack):
    """Contexts by key, each entered when it is asked for first; all end together."""

    def __init__(self, start: Callable[..., AbstractContextManager[Any]]) -> None:
        super().__init__()
        self._start = start
        self._values: dict[tuple[Any, ...], Any] = {}

    def get(self, *key: Any) -> Any:
        if key not in self._values:
            self._values[key] = self.enter_context(self._start(*key))
        return self._values[key]


def kind_of(told: str) -> str:
    return re.sub(r"\d+", "#", told.split("\n", 1)[0])[:200]


def judged(play: Play, case: Case) -> tuple[str, Counter[str]]:
    """What is wrong with a case, empty if nothing is; and what was in it."""
    try:
        return "", play(case)
    except Exception as error:
        lines = f"{type(error).__name__}: {error}".splitlines()
        if not isinstance(error, AssertionError):
            lines += "".join(traceback.format_tb(error.__traceback__, limit=-3)).splitlines()
        return "\n".join(line[:_LINE_MAX] for line in lines[:_LINES_MAX]), Counter()


def sample(
    campaign: Campaign, *, seed: int, count: int, folder: Path, options: Sequence[str] = ()
) -> Counter[str]:
    """Play the first cases of a seed in this process; what was in them. Raises AssertionError: with
    the least that shows the first finding.
    """
    campaign = campaign.with_options(options)
    report = Report(campaign.name, seed, options)
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

    def shows(choices: Case) -> bool:
        finding, _counts = judged(play, choices)
        return bool(finding) and kind_of(finding) == kind

    return least(case, shows, simpler=campaign.simpler, plays_max=campaign.shrink_plays_max)


def least(
    case: Case,
    shows: Callable[[Case], bool],
    *,
    simpler: Callable[[Any], Iterable[Any]] = _nothing_simpler,
    plays_max: int,
) -> Case:
    """The least of a case that still shows something, in so many trials: choices are left out by
    halves, then by ever smaller runs; then simpler ones take the place of those that are left."""
    plays = 0
    size = len(case)
    while size >= 1:
        first = 0
        while first < len(case) and plays < plays_max:
            fewer = case[:first] + case[first + size :]
            plays += 1
            if shows(fewer):
                case = fewer
            else:
                first += size
        size //= 2
    for index in range(len(case)):
        for choice in simpler(case[index]):
            if plays >= plays_max:
                return case
            other = [*case[:index], choice, *case[index + 1 :]]
            plays += 1
            if shows(other):
                case = other
                break
    return case


def _shrink_first(campaign: Campaign, report: Report, play: Play) -> None:
    for kind, found in report.findings.items():
        if found.told.startswith(_DEATH):
            continue
        case = campaign.case(report.seed, found.number)
        if not campaign.shrink_plays_max:
            found.least = case
            continue
        told, _counts = judged(play, case)
        if told and kind_of(told) == kind:
            found.least = shrunk(campaign, play, case, kind)


@contextlib.contextmanager
def played(campaign: Campaign) -> Iterator[Play]:
    in_memory = _MEMORY.is_dir() and not campaign.on_disk
    keeps = os.environ.get(KEEP)
    parent = Path(keeps).absolute() if keeps else _MEMORY if in_memory else None
    with fresh(parent, f"cdc-{campaign.name}-") as folder, campaign.opened(folder) as play:
        yield play


@contextlib.contextmanager
def fresh(parent: Path | None, prefix: str = "play-") -> Iterator[Path]:
    """A new folder that goes afterwards, unless a person wants to see what plays leave."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    folder.chmod(0o755)  # a server that runs as another user reads its files there
    try:
        yield folder
    finally:
        if KEEP not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)


def run(
    campaign: Campaign,
    *,
    seed: int,
    budget: Budget,
    processes: int,
    options: Sequence[str] = (),
    first: int = 0,
    tell: Callable[[str], None] = lambda _line: None,
) -> Report:
    """Play a campaign in several processes, each of which has every so manyth case, and shrink what
    they find in this one. `tell` is called now and then with how far it is. Raises ValueError:
    there is no case to play, or no end.
    """
    began_s = time.monotonic()
    campaign = campaign.with_options(options)
    processes = min(processes, campaign.processes_max)
    end_s = began_s + budget.seconds if budget.seconds is not None else None
    count = campaign.case_count(seed, budget, first)
    last = 1 << 62 if count is None else first + count
    report = Report(campaign.name, seed, options)
    context = multiprocessing.get_context("spawn")
    workers = [
        _Worker(context, campaign, seed, range(number, last, processes), end_s)
        for number in range(first, min(first + processes, last))
    ]
    told_s = began_s
    while workers:
        wait([worker.connection for worker in workers], timeout=0.5)
        for worker in list(workers):
            for number, told, counts, cpu_seconds, grown_bytes in worker.received():
                report.cpu_seconds += cpu_seconds
                report.grown_bytes = max(report.grown_bytes, grown_bytes)
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
                rest = worker.numbers[campaign.process_cases :]
                if rest and (end_s is None or time.monotonic() < end_s):
                    workers[workers.index(worker)] = _Worker(context, campaign, seed, rest, end_s)
                else:
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

    def received(self) -> Iterator[tuple[int, str, Counter[str], float, int]]:
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
        assert_bounds_checks()
        if campaign.memory_bytes_max:
            limit_bytes = address_space_bytes() + campaign.memory_bytes_max
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
        start_bytes = _peak_bytes()
        for number in numbers[: campaign.process_cases]:
            if end_s is not None and time.monotonic() > end_s:
                break
            since.value = time.monotonic()
            at.value = number
            began_s = time.process_time()
            verdict = judged(play, campaign.case(seed, number))
            cpu_seconds = time.process_time() - began_s
            connection.send((number, *verdict, cpu_seconds, _peak_bytes() - start_bytes))
    connection.send(None)
    connection.close()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
