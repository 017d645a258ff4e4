"""Check this machine: Python and packages, Java, jars, memory, cores, disks."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from cdc_pipeline.operations.doctor.context import Check, Context
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.run.wiring import spill_directory
from cdc_pipeline.sink.probe import file_system
from cdc_pipeline.sink.spark.cluster import memory_bytes
from cdc_pipeline.sink.spark.jars import DELTA, JAR_SETS, complete_jars
from cdc_pipeline.sink.spark.java import find_java_home, find_spark_home, java_version
from cdc_pipeline.text.wording import size

_PACKAGE: Final = "cdc-pipeline"
_SPARK: Final = frozenset({"pyspark", "delta-spark"})
_TEMPORARY_BYTES: Final = 1 << 30


def _python(_context: Context) -> Iterator[Verdict]:
    yield ok(f"Python {'.'.join(map(str, sys.version_info[:3]))}")


def _packages(_context: Context) -> Iterator[Verdict]:
    try:
        required = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        yield note(
            "the package is not installed, so the versions that it requires are unknown",
            next_step="make setup",
        )
        return
    fine = []
    for requirement in map(Requirement, required):
        name, wanted = requirement.name, requirement.specifier
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            got = metadata.version(name)
        except metadata.PackageNotFoundError:
            got = "not installed"
        if got != "not installed" and wanted.contains(got, prereleases=True):
            fine.append(f"{name} {got}")
            continue
        # Delta's jars are made for one minor version of Spark.
        verdict = error if name in _SPARK or got == "not installed" else warning
        yield verdict(
            f"the version of {name} is none that this program was tested with",
            expected=str(wanted),
            got=got,
            next_step=f"pip install '{name}{wanted}'; in a checkout: make setup",
        )
    yield ok(f"{', '.join(fine)}")


def _java(context: Context) -> Iterator[Verdict]:
    users = context.config.sink.spark.session
    if users is not None:
        yield ok(f"Spark and Java are those of {users} (sink.spark.session)")
        return
    home = find_java_home()
    yield ok(f"Java {java_version(home) or ''} in {home}; Spark in {find_spark_home()}")


def _jars(context: Context) -> Iterator[Verdict]:
    users = context.config.sink.spark.session
    yield jars_of(DELTA) if users is None else ok(f"those of {users} (sink.spark.session)")


def jars_of(jar_set: str) -> Verdict:
    jars, title = complete_jars(jar_set), JAR_SETS[jar_set].title
    if jars is not None:
        return ok(f"{title}: {len(jars)}, checksums right")
    with_set = "" if jar_set == DELTA else f" --with {jar_set}"
    return note(
        f"{title} are not complete in the cache; the first run that writes downloads them",
        expected="all of them, with the checksums that the package lists",
        got="some are missing or damaged",
        next_step=f"python -m cdc_pipeline.sink.spark{with_set}",
    )


def _memory(context: Context) -> Iterator[Verdict]:
    total, free = _memory_bytes()
    spark = context.config.sink.spark
    driver = 0 if spark.session is not None else memory_bytes(spark.driver_memory)
    store = context.config.store
    ring = 0 if store.kind == "file" else store.ring_events * store.memory_unit_bytes
    wanted = driver + ring + (512 << 20)
    got = f"{size(total)} in total, {size(free)} free"
    parts = (
        f"{size(driver)} for Spark (sink.spark.driver_memory), {size(ring)} for the event "
        "store, and Python's own memory"
    )
    if not total or not driver:
        yield note(
            "it cannot be determined how much memory the machine has, or how much a run takes",
            got=got,
        )
    elif wanted > total:
        yield error(
            "this machine has less memory than a run takes",
            expected=parts,
            got=got,
            next_step="sink: {spark: {driver_memory: 1g}}, or a larger machine",
        )
    elif wanted > free:
        yield warning(
            "a run takes more memory than is free now",
            expected=parts,
            got=got,
            next_step="stop other programs, or sink: {spark: {driver_memory: 1g}}",
        )
    else:
        yield ok(f"{got}; a run takes up to {size(wanted)}")


def _memory_bytes() -> tuple[int, int]:
    """Total and free memory of machine or container; (0, 0) if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0, 0
    fields = {
        line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if len(line.split()) == 3
    }
    total, free = fields.get("MemTotal", 0), fields.get("MemAvailable", 0)
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return total, free
    return min(total, limit), min(free, max(0, limit - used))


def _cores(context: Context) -> Iterator[Verdict]:
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    match = re.fullmatch(r"local\[(\d+)\]", context.config.sink.spark.master)
    if match and int(match[1]) > cores:
        yield note(
            "Spark has more threads than the machine has cores",
            expected=f"local[{cores}], or local[*]",
            got=match[0],
            next_step=f"sink: {{spark: {{master: 'local[{cores}]'}}}}",
        )
    elif cores < 2:
        yield note(
            "the machine has one core: reading waits while tables are merged",
            expected="2 or more",
            got="1",
        )
    else:
        yield ok(f"{cores} cores")


def _disks(context: Context) -> Iterator[Verdict]:
    store = context.config.store
    if store.kind != "memory":
        folder = spill_directory(context.config)
        place = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = file_system(folder).free_bytes
        if not os.access(place, os.W_OK | os.X_OK):
            yield error(
                "the event store cannot write its files",
                expected="a folder that this user can write",
                got=str(place),
                next_step="store: {directory: ...}",
            )
        elif free < store.disk_bytes_max:
            yield warning(
                "the event store may fill its disk if a backlog is read faster than it is merged",
                expected=f"{size(store.disk_bytes_max)} free (store.disk_bytes_max)",
                got=f"{size(free)} in {place}",
                next_step=f"store: {{disk_bytes_max: {max(64 << 20, free // 2)}}}, or "
                "another store.directory",
            )
        else:
            yield ok(f"{size(free)} are free for the event store's files in {place}")
    temporary = Path(tempfile.gettempdir())
    free = file_system(temporary).free_bytes
    if free < _TEMPORARY_BYTES:
        yield warning(
            "the folder for temporary files is nearly full; Spark shuffles there",
            expected=f"{size(_TEMPORARY_BYTES)} free",
            got=f"{size(free)} in {temporary}",
            next_step="free disk space, or export TMPDIR=...",
        )
    else:
        yield ok(f"{size(free)} are free for temporary files in {temporary}")


CHECKS: Final = (
    Check("local", "Python", _python),
    Check("local", "packages", _packages),
    Check("local", "Java", _java),
    Check("local", "jars", _jars),
    Check("local", "memory", _memory),
    Check("local", "cores", _cores),
    Check("local", "disks", _disks),
)
