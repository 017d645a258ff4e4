"""Probe whether a lake supports what a run does: the operations on its state, and a Delta table,
all in scratch folders.

Rules:
- Everything is written in ``_cdc/<source>/doctor-<id>``, which is removed at the end, with the
  state folders that were made for it.
- Nothing here touches the source's own lock, records or tables.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import SinkError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.spark.own_session import delta_version
from cdc_pipeline.sink.spark.session import SparkProvider
from cdc_pipeline.sink.spark.sql import table_at
from cdc_pipeline.text.server_messages import said_by

SCRATCH_PREFIX: Final = "doctor-"
_ROWS: Final = 1000
_JAVA_VERSION: Final = "SELECT java_method('java.lang.System', 'getProperty', 'java.version')"
_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "sshfs", "fuse.sshfs", "glusterfs", "ceph"}
)
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


@contextmanager
def scratch(paths: LakePaths) -> Iterator[Path]:
    folder = paths.state / f"{SCRATCH_PREFIX}{uuid.uuid4().hex[:12]}"
    absent = (
        []
        if is_object(folder)
        else [made for made in (folder, *folder.parents) if not made.exists()]
    )
    try:
        yield folder
    finally:
        storage_of(folder).remove_tree(folder)
        for made in absent:
            with suppress(OSError):  # another process put something there meanwhile
                made.rmdir()


def probe_lake(paths: LakePaths) -> float:
    """Put if absent, replace, lock and remove a scratch file; return the seconds. Raises SinkError:
    the lake lacks a guarantee; RuntimeSetupError: it cannot be written, or its store ignores
    conditional writes; LakeUnreachableError.
    """
    began_s = time.monotonic()
    with scratch(paths) as folder:
        verbs, file = storage_of(folder), folder / "record.json"
        try:
            if (
                not verbs.put_if_absent(file, b"1")
                or verbs.put_if_absent(file, b"2")
                or file.read_bytes() != b"1"
            ):
                raise SinkError(
                    "the lake accepts two writers at once",
                    expected="a second put of the same file is refused",
                    got="it was accepted",
                    next_step="move the lake to a file system with hard links, or a store with "
                    "conditional puts",
                )
            verbs.replace(file, b"3")
            with writer_lock(folder / "writer.lock"):
                verbs.remove(file)
        except OSError as error:
            raise SinkError(
                f"the lake cannot be written: {paths.lake}",
                setting="sink.lake_path",
                expected="a lake that this user may write to",
                got=f"{type(error).__name__}: {error.strerror}",
                next_step="choose another sink.lake_path, or grant the permission",
            ) from None
    return time.monotonic() - began_s


@dataclass(frozen=True, slots=True)
class FileSystem:
    """`kind`: such as ext4, "" unknown; what is `in_container` is lost with that."""

    kind: str
    free_bytes: int
    total_bytes: int

    @property
    def is_remote(self) -> bool:
        return self.kind in _REMOTE

    @property
    def in_memory(self) -> bool:
        return self.kind in _IN_MEMORY

    @property
    def in_container(self) -> bool:
        return self.kind == "overlay"


def file_system(path: Path) -> FileSystem:
    """Of a folder, or of its nearest parent that exists."""
    place = next(folder for folder in (path, *path.parents) if folder.exists()).resolve()
    used = shutil.disk_usage(place)
    kind, longest = "", -1
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        mounts = []
    for line in mounts:
        _, point, of, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if os.path.commonpath([point, place]) == point and len(point) >= longest:
            kind, longest = of, len(point)
    return FileSystem(kind, used.free, used.total)


@dataclass(frozen=True, slots=True)
class SparkProbe:
    """Versions of Spark, Delta and Java, and seconds of each step: start, write, read."""

    versions: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)


def probe_spark(config: SinkConfig, paths: LakePaths) -> SparkProbe:
    """A scratch Delta table. RuntimeSetupError: Spark does not start; SinkError: Delta fails."""
    from pyspark import SparkContext

    context: Any = SparkContext
    # one session is shared by all of a process
    is_of_others = context._active_spark_context is not None
    provider = SparkProvider.from_config(config, is_patient=False)
    began_s = time.monotonic()
    session: Any = provider.session()
    try:
        start_s = time.monotonic() - began_s
        versions = {
            "Spark": str(session.version),
            "Delta": delta_version(session),
            "Java": str(session.sql(_JAVA_VERSION).first()[0]),
        }
        write_s, read_s = probe_delta(session, paths)
    finally:
        if not is_of_others:
            provider.stop()
    return SparkProbe(versions, {"start": start_s, "write": write_s, "read": read_s})


def probe_delta(session: Any, paths: LakePaths) -> tuple[float, float]:
    """Seconds of write and read. Raises SinkError: Delta does not write or read there."""
    marks = [time.monotonic()]
    with scratch(paths) as folder:
        table = str(folder / "table")
        try:
            session.range(_ROWS).write.format("delta").save(table)
            marks.append(time.monotonic())
            read_row = session.sql(
                f"SELECT count(*), sum(id) FROM {table_at(folder / 'table')}"  # noqa: S608
            ).first()
            marks.append(time.monotonic())
        except Exception as error:
            raise SinkError(
                "Delta does not write or read a table in the lake",
                expected=f"{_ROWS} rows written and read",
                got=said_by(error),
                next_step="if a class is missing: `python -m cdc_pipeline.sink.spark --with s3` "
                "(or azure, gcs); if it is refused: let the account write there",
            ) from None
        if tuple(read_row) != (_ROWS, _ROWS * (_ROWS - 1) // 2):
            raise SinkError(
                "Delta reads back different rows than it wrote",
                expected=f"{_ROWS} rows",
                got=tuple(read_row),
            )
    write_s, read_s = (after - before for before, after in pairwise(marks))
    return write_s, read_s
