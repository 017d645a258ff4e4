"""Many runs in one process that the shim is loaded into; findings go to standard output, one JSON
text a line.

python -m tests.campaigns.disk.cases FOLDER PART [--spark] [--stride=N] ...

PART is ``full``, ``broken`` (call n fails by ENOSPC or EIO), ``exit`` (the process ends there), or
``power``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake import table_facts
from cdc_pipeline.sink.durable import power_cut
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.campaigns.disk import stand_in
from tests.campaigns.disk.disk import Disk, Fault
from tests.campaigns.disk.power import PowerCut
from tests.campaigns.disk.shop import EXPECTED, content, run


class Cases:
    """Runs on copies of one lake: how many were checked, and of how many something was not as it
    should be."""

    def __init__(self, folder: Path, spark: Any, *, prepared: int) -> None:
        """`prepared`: batches that the lake has already as a case begins."""
        self.found = self.checked = 0
        self._lakes = folder / "lakes"
        self._spark = spark
        self._disk = Disk(self._lakes, folder / "disk")
        self._lakes.mkdir(exist_ok=True)
        self._prepared = self._lakes / "prepared"
        self._upto = prepared
        self._cases = 0

    def prepare(self) -> None:
        if not self._prepared.exists():
            self._prepared.mkdir()
            run(self._prepared / "lake", self._spark, upto=self._upto)

    def count(self, *, forked: bool) -> int:
        """Counted calls of a whole run from the prepared lake on."""
        lake = self._lake()
        with self._disk.armed():
            if forked:
                in_a_fork(lambda: run(lake, self._spark))
            else:
                run(lake, self._spark)
        return self._disk.counted

    def fail(self, number: int, fault: Fault, *, stays: bool) -> None:
        """Call `number` fails; the error is one of ours, and the next run finishes all."""
        lake = self._lake()
        error: BaseException | None = None
        with self._disk.armed(fault, at=number, stays=stays):
            try:
                run(lake, self._spark)
            except Exception as raised:
                error = raised
        about = {"call": number, "fault": fault, "stays": stays, "hit": self._disk.hit}
        if error is not None and not isinstance(error, CdcError):
            text = "".join(traceback.format_exception(error)[-4:])
            self._tell(about, f"raw {type(error).__name__}", text)
        elif isinstance(error, CdcError) and not error.next_step:
            self._tell(about, f"no next step: {error.what}", str(error))
        self._check(lake, about)

    def die(self, number: int) -> None:
        """The process ends at call `number`; the next run finishes all."""
        lake = self._lake()
        with self._disk.armed("exit", at=number):
            in_a_fork(lambda: run(lake, self._spark))
        about = {"call": number, "fault": "exit", "hit": self._disk.hit}
        self.checked += 1
        self.found += in_a_fork(lambda: self._check(lake, about)) != 0

    def cut_power(self, seed: int, *, states: int, stride: int, offset: int) -> None:
        """At each `stride`-th fault point of a run the power goes, in several ways; each time the
        next run finishes all. At each cut nothing that it names is lacking."""
        choose = random.Random(seed)
        lake = self._lake()
        before = self._set_aside(lake.parent, "before")
        moments: list[tuple[str, int, Path]] = []

        def look(point: str) -> None:
            # another merge may be at work: no moment at which all stands still
            if point != "between_merges":
                moments.append(
                    (
                        point,
                        len(self._disk.calls()),
                        self._set_aside(lake.parent, f"live-{len(moments)}"),
                    )
                )

        put = table_facts.put_if_absent

        def named(path: Path, text: str) -> bool:
            is_cut = path.parent.name == "cuts"
            if is_cut:
                look("cut")
            done = put(path, text)
            look("after_cut" if is_cut else "after_facts")
            return done

        self._disk.clear()
        with self._disk.armed(), listening(look), pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_facts, "put_if_absent", named)
            run(lake, self._spark)
        calls = self._disk.calls()
        disk, taken = PowerCut(lake.parent, before), 0
        for point, upto, live in moments:
            disk.take(calls[taken:upto])
            taken = upto
            disk.check(live)
            if point == "cut":
                lacking = [
                    str(path.relative_to(lake)) for path in disk.unsynced() if _is_named(path, lake)
                ]
                if lacking:
                    self._tell(
                        {"point": point}, "a cut names what the disk lacks", "\n".join(lacking)
                    )
            for state in range(
                states if int(live.name.rpartition("-")[2]) % stride == offset else 0
            ):
                struck = self._lakes / f"struck-{self._cases}"
                self._cases += 1
                disk.strike(live, self._disk.grave, struck, choose)
                self._check(struck / "lake", {"point": point, "moment": live.name, "state": state})
                shutil.rmtree(struck, ignore_errors=True)
            shutil.rmtree(live)

    # -- parts -------------------------------------------------------------------------------------

    def _lake(self) -> Path:
        self._cases += 1
        return Path(shutil.copytree(self._prepared, self._lakes / f"case-{self._cases}")) / "lake"

    def _set_aside(self, folder: Path, name: str) -> Path:
        return Path(shutil.copytree(folder, self._lakes.parent / "aside" / name))

    def _check(self, lake: Path, about: dict[str, Any]) -> bool:
        """Whether another run, which meets no fault, finishes all. After a power cut the machine
        has started again."""
        self.checked += 1
        found = self.found
        try:
            with pytest.MonkeyPatch.context() as patch:
                if "point" in about:
                    patch.setattr(power_cut, "boot_id", lambda: "another start")
                run(lake, self._spark)
                is_right = content(lake, self._spark) == EXPECTED
            if not is_right:
                self._tell(about, "the lake differs", repr(content(lake, self._spark)))
        except Exception as error:
            text = "".join(traceback.format_exception(error)[-6:])
            self._tell(about, f"the next run fails: {type(error).__name__}", text)
        if lake.parent.name.startswith("case-"):
            shutil.rmtree(lake.parent, ignore_errors=True)
        return self.found == found

    def _tell(self, about: dict[str, Any], what: str, text: str) -> None:
        self.found += 1
        print(json.dumps({**about, "what": what, "text": text}), flush=True)


def in_a_fork(body: Callable[[], bool | None]) -> int:
    """Run it in a process that begins as a copy of this one; its exit code, 0 unless `body` says
    False or raises.

    This process must not have used the libraries that keep threads (Arrow, delta-rs): no copy has
    those.
    """
    child = os.fork()
    if not child:
        code = 1
        with suppress(BaseException):
            code = body() is False
        sys.stdout.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


_NAMED = ("batches", "quarantine", "schema_history.json", "tables", "xa")


def _is_named(path: Path, lake: Path) -> bool:
    """Whether a cut leads to it: a table's file or folder, the quarantine, parked rows, the schema
    history."""
    if path in (lake, lake.parent):
        return path == lake
    parts = path.relative_to(lake).parts
    return parts[0] != "_cdc" or (
        len(parts) > 2
        and parts[2] in ("quarantine", "xa", "tables", "schema_history.json", "batches")
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", choices=["full", "broken", "exit", "power"])
    parser.add_argument("--spark", action="store_true")
    for name in ("stride", "offset", "seed", "states"):
        parser.add_argument(f"--{name}", type=int)
    asked = parser.parse_args()
    patch = pytest.MonkeyPatch()
    spark: Any = stand_in.NoSpark()
    if asked.spark:
        spark = SparkProvider(SparkConfig(master="local[2]", driver_memory="1g"))
    else:
        stand_in.install(patch)
    cases = Cases(asked.folder, spark, prepared=1 if asked.part != "power" else 0)
    if asked.part == "exit":
        in_a_fork(cases.prepare)
    else:
        cases.prepare()
    if asked.part == "power":
        cases.cut_power(asked.seed, states=asked.states, stride=asked.stride, offset=asked.offset)
        print(json.dumps({"done": asked.part, "cases": cases.checked}), flush=True)
        return bool(cases.found)
    calls = cases.count(forked=asked.part == "exit")
    for number in range(asked.offset + 1, calls + 1, asked.stride):
        if asked.part == "exit":
            cases.die(number)
        else:
            cases.fail(number, asked.part, stays=asked.part == "full" and number % 2 == 0)
    print(json.dumps({"done": asked.part, "cases": cases.checked, "calls": calls}), flush=True)
    return bool(cases.found)


if __name__ == "__main__":
    sys.exit(main())
