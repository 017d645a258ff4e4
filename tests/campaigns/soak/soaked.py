"""One source: its servers, its workload, the process that captures it for hours, and what else
happens to it.

Rules:
- What happens is dealt from a deck that the seed has shuffled, so that each kind comes as often as
  `DECK` says. One thing happens at a time; the workload goes on meanwhile.
- An error that is retryable while a server is being replaced is none, and neither are suspended
  tables: they are loaded again. Every other error is a finding, and so is a difference.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import read_cut
from tests.campaigns.sink.group import FAULT_POINTS
from tests.campaigns.sink.spark_settings import LONG_RUN
from tests.campaigns.snapshot.campaign import FAULT_POINTS as SNAPSHOT_POINTS
from tests.campaigns.soak.ending import compare
from tests.campaigns.soak.measures import Measures, folders, log_files, outside
from tests.campaigns.soak.workload import CHANGELOGS, Workload, database_of, rules
from tests.servers import Flavor, Forwarder, ReplicaPair
from tests.support.captures import live

ROOT = Path(__file__).resolve().parents[3]
CATCH_UP_S = 300.0
TRIES = 5
MAINTAINED = 8  # tables at a time

DECK = {
    "capture": 62,
    "killed_capture": 4,
    "load": 4,
    "killed_load": 2,
    "snapshot_needed": 5,
    "resume": 3,
    "verify": 6,
    "maintain": 4,
    "failover": 2,
    "failover_in_capture": 2,
    "rotate": 4,
}

Answer = dict[str, Any]


class Soaked:
    """A source under work. A context manager. `flavor`: of its servers; `folder`: for the lake,
    temporary files and logs; `seed`: of all choices; `tables`: how many; `pause_s`: of the
    workload, between transactions; `retention`: of cuts; `measure_every_s`: how often a sample
    is taken. `samples`: one row of measures each time; `counts`: what has happened; `findings`:
    what must not have; `actions`: how many were dealt so far.
    """

    def __init__(
        self,
        flavor: Flavor,
        folder: Path,
        *,
        seed: int,
        tables: int,
        pause_s: float,
        retention: str,
        measure_every_s: float,
    ) -> None:
        self.flavor, self.folder, self.name = flavor, folder, f"soak_{flavor}"
        self.samples: list[Measures] = []
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.actions = 0
        self._seed, self._tables, self._pause_s = seed, tables, pause_s
        self._retention, self._measure_every_s = retention, measure_every_s
        self._choose = random.Random(f"director {flavor} {seed}")
        self._deck: list[str] = []
        self._batches: list[tuple[float, float]] = []  # seconds and CPU-seconds a batch
        self._stack = ExitStack()
        self._began_s = time.monotonic()
        self._measured_s = self._began_s

    def __enter__(self) -> Soaked:
        try:
            self._enter()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _enter(self) -> None:
        for name in ("tmp", "killed_tmp", "spill"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._pair = self._stack.enter_context(
            ReplicaPair(self.flavor, options={"innodb_buffer_pool_size": "128M"})
        )
        self._address = self._stack.enter_context(Forwarder(self._pair.primary))
        start = self._pair.primary.end_position()
        self._write_config(start)
        self.workload = Workload(
            self._pair.primary,
            tables=self._tables,
            seed=self._seed,
            pause_s=self._pause_s,
            ddl_every=60,
        )
        self._stack.callback(self.workload.stop)
        self._log = self._stack.enter_context((self.folder / "actions.jsonl").open("a"))
        errors = self._stack.enter_context((self.folder / "runner.err").open("ab"))
        self._runner = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.soak.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=self._environment("tmp"),
        )
        self._stack.callback(self._end_runner)

    def _end_runner(self) -> None:
        assert self._runner.stdin is not None
        self._runner.stdin.close()
        if sys.exc_info()[0] is not None:
            self._runner.kill()  # what it does has no end that anybody waits for
        self._runner.wait()

    def _environment(self, temporary: str) -> dict[str, str]:
        own = str(self.folder / temporary)
        return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": own, "SPARK_LOCAL_DIRS": own}

    def _config_file(self, temporary: str) -> Path:
        return self.folder / f"config_{temporary}.json"

    def _write_config(self, start: tuple[str, int]) -> None:
        source = live(self._pair.primary)
        for temporary in ("tmp", "killed_tmp"):
            java = LONG_RUN["settings"]["spark.driver.extraJavaOptions"]
            settings = {
                **LONG_RUN["settings"],
                "spark.driver.extraJavaOptions": f"{java} -Djava.io.tmpdir="
                f"{self.folder / temporary}",
            }
            document = {
                "name": self.name,
                "source": {**source, "host": self._address.host, "port": self._address.port},
                "tables": {"include": ["soak*.*"]},
                "start": {"journal": start[0], "offset": start[1]},
                "targets": rules(),
                "store": {"directory": str(self.folder / "spill")},
                "snapshot": {"chunk_rows": 25},
                "maintenance": {"small_files": 8, "vacuum_hours": 0},
                "sink": {
                    "lake_path": str(self.folder / "lake"),
                    "cut_retention": self._retention,
                    "spark": {**LONG_RUN, "driver_memory": "1g", "settings": settings},
                },
            }
            self._config_file(temporary).write_text(json.dumps(document), encoding="utf-8")

    # -- the time of work --------------------------------------------------------------------------

    def work(self, until_s: float, *, actions_max: int | None = None) -> None:
        """Let things happen until `time.monotonic` is `until_s`, or so many have; then bring all up
        to the server's end and compare."""
        self._capture()  # of the tables' creation
        self.workload.start()
        while time.monotonic() < until_s and self.workload.error is None:
            if actions_max is not None and self.actions >= actions_max:
                break
            self._deal()
            if time.monotonic() - self._measured_s >= self._measure_every_s:
                self.measure()
        self.workload.stop()
        if self.workload.error is not None:
            self.findings.append(f"the workload ended: {self.workload.error!r}")
        self._end()

    def deal_from(self, deck: Sequence[str]) -> None:
        """Put a deck of kinds in the place of the shuffled one; the last is dealt first."""
        self._deck = list(deck)

    def _deal(self) -> None:
        if not self._deck:
            self._deck = [kind for kind, count in DECK.items() for _ in range(count)]
            self._choose.shuffle(self._deck)
        kind = self._deck.pop()
        self.actions += 1
        getattr(self, f"_{kind}")()
        self.counts[kind] += 1

    def _end(self) -> None:
        """All is loaded, captured and compared, and some verified, while nothing is written."""
        self._snapshot_needed()
        self._capture()
        self.measure()
        names = self.workload.names
        kept = [name for name in names if name.startswith(database_of(CHANGELOGS))]
        others = self._choose.sample(names, min(10, len(names)))
        answer = self._repeated("verify", tables=sorted({*kept, *others}))
        self._judge_verified(answer, last=True)
        for status, count in Counter(answer.get("statuses", {}).values()).items():
            self.counts[f"verified {status} at the end"] = count
        compared, found = compare(self._pair.primary, self.folder / "lake", self.name)
        self.counts["compared at the end"] = compared
        self.findings += found

    # -- what happens ------------------------------------------------------------------------------

    def _capture(self) -> None:
        answer = self._repeated("capture")
        if answer["ok"] and answer["batches"]:
            self.counts["batches"] += answer["batches"]
            self.counts["transactions captured"] += answer["transactions"]
            self._batches.append(
                (answer["seconds"] / answer["batches"], answer["cpu_s"] / answer["batches"])
            )

    def _killed_capture(self) -> None:
        point = self._choose.choice(FAULT_POINTS)
        occurrence = self._choose.randint(1, 4) if point == "between_merges" else 1
        self._killed({"do": "capture", "point": point, "occurrence": occurrence})

    def _load(self) -> None:
        names = self._choose.sample(self.workload.names, self._choose.randint(1, 3))
        self._repeated("load", tables=names)

    def _killed_snapshot(self) -> None:
        """A load that is killed, and gone on with by the next one."""
        tables = self._choose.sample(self.workload.names, 2)
        self._killed(
            {"do": "load", "point": self._choose.choice(SNAPSHOT_POINTS), "tables": tables}
        )
        self._repeated("load", tables=tables)

    def _snapshot_needed(self) -> None:
        """Load what needs it, or was begun and not ended; then whatever else is suspended, such as
        by a DDL that the policy refuses: a person who reads the error names these tables."""
        answer = self._repeated("load")
        self.counts["targets loaded again"] += len(answer.get("targets", ()))
        suspended = sorted(self._last_cut().cursor.suspended)
        if suspended:
            answer = self._repeated("load", tables=suspended)
            self.counts["targets loaded again"] += len(answer.get("targets", ()))

    def _resume(self) -> None:
        """Try to catch up suspended tables without a load, which those stay that need one."""
        self._repeated("capture", tables=self.workload.names[:5])

    def _verify(self) -> None:
        names = self._choose.sample(self.workload.names, 2)
        self._judge_verified(self._repeated("verify", tables=names))

    def _maintain(self) -> None:
        targets = sorted(self._last_cut().tables)
        names = self._choose.sample(targets, min(MAINTAINED, len(targets)))
        answer = self._repeated("maintain", tables=names)
        for name in ("optimized", "vacuumed", "cuts_removed"):
            self.counts[name] += answer.get(name, 0)
        if answer.get("failed"):
            self._find("maintain", {"text": str(answer["failed"])})

    def _rotate(self) -> None:
        """A new journal; those of which nothing is needed any more go, on both servers."""
        cursor = self._cursor_journal()
        self._pair.primary.flush_journal()
        if cursor in {journal.name for journal in self._pair.primary.journals()}:
            kept = [journal.name for journal in self._pair.primary.journals()]
            oldest = kept[max(0, kept.index(cursor) - 3)]
            self._pair.primary.execute(f"PURGE BINARY LOGS TO '{oldest}'")

    def _failover(self) -> None:
        """The replica becomes the primary; the old one comes back as its replica."""
        with self.workload.paused():
            self._pair.wait_caught_up(CATCH_UP_S)
            self._address.point_to(None)
            new = self._pair.promote(kill=True, stop=self._choose.random() < 0.5)
            self.workload.go_to(new)
            self._address.point_to(new)
        self._pair.rejoin()

    def _failover_in_capture(self) -> None:
        captured: list[Answer] = []
        thread = threading.Thread(target=lambda: captured.append(self._ask("capture")))
        thread.start()
        self._failover()
        thread.join()
        self._judge("capture", captured[0], in_failover=True)
        self._capture()

    # -- the processes -----------------------------------------------------------------------------

    def _ask(self, do: str, **wish: Any) -> Answer:
        """One answer of the long-lived process."""
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        text = json.dumps({"do": do, "config": str(self._config_file("tmp")), **wish})
        self._runner.stdin.write(text + "\n")
        self._runner.stdin.flush()
        line = self._runner.stdout.readline()
        if not line:
            raise AssertionError(f"the process of {self.name} ended with {self._runner.wait()}")
        answer: Answer = json.loads(line)
        self._note({"do": do, **wish}, answer)
        return answer

    def _repeated(self, do: str, **wish: Any) -> Answer:
        """An answer that is a success or counts as one, after as many tries as a scheduler has."""
        for _ in range(TRIES):
            answer = self._ask(do, **wish)
            if answer["ok"] or not answer["error"].get("retryable"):
                break
            self.counts["retried"] += 1
        self._judge(do, answer)
        return answer

    def _killed(self, wish: Answer) -> None:
        """A process of its own, with a JVM of its own, that ends at a fault point or goes by it."""
        wish["config"] = str(self._config_file("killed_tmp"))
        done = subprocess.run(
            [sys.executable, "-m", "tests.campaigns.soak.runner", json.dumps(wish)],
            cwd=ROOT,
            env=self._environment("killed_tmp"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == -signal.SIGKILL:
            self.counts["kills"] += 1
            self._note(wish, {"killed": True})
        elif done.returncode == 0:
            answer = json.loads(done.stdout)
            self._note(wish, answer)
            self._judge(wish["do"], answer)
        else:
            self._find(wish["do"], {"text": f"exit {done.returncode}: {done.stderr[-2000:]}"})

    def _judge(self, do: str, answer: Answer, *, in_failover: bool = False) -> None:
        if answer["ok"]:
            return
        error = answer["error"]
        code = str(error.get("code"))
        self.counts[f"error {code}"] += 1
        if code == TargetSuspendedError.code() or (in_failover and error.get("retryable")):
            return
        self._find(do, answer)

    def _judge_verified(self, answer: Answer, *, last: bool = False) -> None:
        wanted = ("equal",) if last else ("equal", "unsettled")
        for name, status in answer.get("statuses", {}).items():
            self.counts[f"verified {status}"] += 1
            reason = answer["reasons"].get(name, "")
            # Where images are not complete, a changelog cannot always be followed to another key.
            untold = "images that lack columns" in reason
            if status not in wanted and not (status == "not_compared" and (untold or not last)):
                self._find("verify", {"text": f"{name} is {status}: {reason}"})

    def _find(self, do: str, answer: Answer) -> None:
        text = f"{do} (action {self.actions}): {answer['text'].strip()}"
        self.findings.append(text)
        print(f"[{self.flavor}] FINDING {text}", flush=True)

    def _note(self, wish: Answer, answer: Answer) -> None:
        wish = {name: value for name, value in wish.items() if name != "config"}
        line = {"at_s": round(time.monotonic() - self._began_s, 1), **wish, **answer}
        self._log.write(json.dumps(line, ensure_ascii=True) + "\n")
        self._log.flush()

    def _last_cut(self) -> Cut:
        paths = LakePaths((self.folder / "lake").absolute(), self.name)
        return read_cut(paths, list_numbers(paths.cuts)[-1])

    def _cursor_journal(self) -> str:
        """The oldest journal that a consumer of the last cut may still need."""
        cursor = self._last_cut().cursor
        held = [state.suspended.journal for state in cursor.targets.values() if state.suspended]
        return min([cursor.journal, *held])

    # -- measures ----------------------------------------------------------------------------------

    def measure(self) -> None:
        """Take a sample, between two actions."""
        lake = self.folder / "lake"
        answer = self._ask("measure")
        sample: Measures = {"at_s": round(time.monotonic() - self._began_s, 1)}
        sample |= {name: value for name, value in answer.items() if isinstance(value, int | float)}
        for name in ("ok", "seconds", "cpu_s"):
            sample.pop(name, None)
        sample |= outside(self._runner.pid)
        sample |= folders(
            {
                "temporary": self.folder / "tmp",
                "killed_temporary": self.folder / "killed_tmp",
                "spill": self.folder / "spill",
                "state": lake / "_cdc",
            }
        )
        sample["state_bytes_a_file"] = round(sample["state_bytes"] / max(1, sample["state_files"]))
        sample |= {
            f"state_{folder.name}_files": folders({"": folder})["_files"]
            for folder in sorted((lake / "_cdc" / self.name).iterdir())
            if folder.is_dir()
        }
        sample |= log_files(lake)
        if self._batches:
            seconds, cpu_s = (list(values) for values in zip(*self._batches, strict=True))
            sample["capture_ms_a_batch"] = round(1000 * median(seconds), 1)
            sample["capture_cpu_ms_a_batch"] = round(1000 * median(cpu_s), 1)
            self._batches.clear()
        self.samples.append(sample)
        self._measured_s = time.monotonic()
        with (self.folder / "samples.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(sample) + "\n")
