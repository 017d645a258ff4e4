"""Workers that judge mutants by number, and a watch over them: one that dies, hangs or grows too
large is a finding.

Rules:
- What is done with a number is a job: a function that is called once in the worker and returns the
  one that judges.
- A worker tells the number that it is about to judge through shared memory; so its death can be
  blamed on a mutant. The next worker goes on behind it.
- The address space of a worker ends MEMORY_BYTES_MAX above what it had after it decoded every seed
  once.
- With bounds checks the kernels are compiled into a cache folder of their own: the switch is not
  part of numba's key.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.campaigns.fuzz.mutations import Mutant, mutant

MUTANT_S_MAX: Final = 20.0
START_S_MAX: Final = 900.0  # bounds-checked kernels compile for minutes the first time
MEMORY_BYTES_MAX: Final = 1 << 30
_AT_START: Final = -1

Job: TypeAlias = Callable[[Path], Callable[[int], tuple[str, str]]]


@dataclass(slots=True)
class Findings:
    """What a run found.

    Attributes:
        outcomes: count by outcome.
        found: by number of the mutant, what it did.
        peak_bytes: largest resident memory of a worker above what it had before its first mutant.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    found: dict[int, str] = field(default_factory=dict)
    peak_bytes: int = 0


def judge_mutants(folder: Path) -> Callable[[int], tuple[str, str]]:
    """The job of a run: outcome and detail of the mutant of a number."""
    from tests.campaigns.fuzz import judge
    from tests.campaigns.fuzz.journal import seed_names

    assert_bounds_checks()
    for seed in seed_names():
        judge.load_seed(seed, folder)
        judge.judge(Mutant(seed, [], []), folder)

    def one(number: int) -> tuple[str, str]:
        verdict = judge.judge(mutant(number), folder)
        return verdict.outcome, verdict.detail

    return one


def run(
    first: int,
    count: int,
    *,
    workers: int,
    job: Job = judge_mutants,
    tell: Callable[[int], None] = lambda _done: None,
    mutant_s_max: float = MUTANT_S_MAX,
) -> Findings:
    """Judge the mutants [first, first + count) in `workers` processes. `tell` is called with the
    number done so far."""
    context = multiprocessing.get_context("spawn")
    result = Findings()
    shares = [list(range(first + index, first + count, workers)) for index in range(workers)]
    running = [_Worker(context, share, job) for share in shares if share]
    done = 0
    while running:
        wait([worker.connection for worker in running], timeout=0.5)
        for worker in list(running):
            for number, outcome, detail, grown_bytes in worker.received():
                done += 1
                result.outcomes[outcome] += 1
                result.peak_bytes = max(result.peak_bytes, grown_bytes)
                if outcome == "finding":
                    result.found[number] = detail
            what = worker.failure(mutant_s_max)
            if what is not None:
                number = worker.at.value
                if number == _AT_START:
                    raise RuntimeError(f"a worker {what} before its first mutant")
                done += 1
                result.outcomes["finding"] += 1
                result.found[number] = f"the process {what}"
                rest = worker.numbers[worker.numbers.index(number) + 1 :]
                running[running.index(worker)] = worker = _Worker(context, rest, job)
            if worker.is_done:
                worker.process.join()
                running.remove(worker)
        tell(done)
    return result


class _Worker:
    def __init__(self, context: Any, numbers: list[int], job: Job) -> None:
        self.numbers = numbers
        self.at = context.Value("q", _AT_START, lock=False)
        self.since = context.Value("d", time.monotonic(), lock=False)
        self.connection: Connection
        self.connection, child = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_work, args=(numbers, job, child, self.at, self.since), daemon=True
        )
        self.process.start()
        child.close()
        self.is_done = self.has_hung_up = False

    def received(self) -> Iterator[tuple[int, str, str, int]]:
        """Verdicts that have come."""
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if message is None:
                    self.is_done = True
                    return
                yield message
        except (EOFError, OSError):
            self.has_hung_up = True

    def failure(self, mutant_s_max: float) -> str | None:
        """What became of the process, if it cannot go on."""
        if self.is_done:
            return None
        if not self.process.is_alive():
            if not self.has_hung_up:
                return None  # its last words first
            code = self.process.exitcode or 0
            return f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        limit_s = START_S_MAX if self.at.value == _AT_START else mutant_s_max
        if time.monotonic() - self.since.value > limit_s:
            self.process.kill()
            self.process.join()
            return f"hung for {limit_s:.0f} s"
        return None


def _work(numbers: list[int], job: Job, connection: Connection, at: Any, since: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="cdc-fuzz-") as name:
        judge = job(Path(name))
        start_bytes = peak_bytes()
        resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes() + MEMORY_BYTES_MAX,) * 2)
        for number in numbers:
            since.value = time.monotonic()
            at.value = number
            connection.send((number, *judge(number), peak_bytes() - start_bytes))
    connection.send(None)
    connection.close()


def assert_bounds_checks() -> None:
    """Raise if bounds checks are wanted and the kernels lack them.

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
    raise RuntimeError(
        "the kernels were compiled without bounds checks: give them an empty NUMBA_CACHE_DIR"
    )


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def address_space_bytes() -> int:
    """Address space of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def keep(result: Findings, folder: Path) -> list[Path]:
    """Each finding as a file that `tests/campaigns/fuzz/crashers` takes as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, detail in sorted(result.found.items()):
        file = folder / f"{number}.json"
        case = {"what": detail, "number": number, **mutant(number).as_dict()}
        file.write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
        files.append(file)
    return files
