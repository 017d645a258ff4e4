"""Read and write a lake's own files: the same verbs for local disks and object stores.

Rules:
- A new file appears whole under its name or not at all, and is durable when the verb returns: on a
  disk by a temporary name, fsync and a link or rename; in an object store by its own conditional
  put.
- `put_if_absent` lets exactly one of several writers win, whatever machines an object store's
  writers run on (K16).
- `unique` names: two writers that both believe to hold the source (one has lost its lease without
  noticing) must not write the same object. On a disk the lock makes that impossible.

`storage_of` returns the verbs for a path; `LakePaths` has the paths.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from cdc_pipeline.config.storage_config import LakeUri, parse_uri
from cdc_pipeline.errors import SinkError
from cdc_pipeline.lake.storage.file_failures import cure_of, kind_of
from cdc_pipeline.lake.storage.object_path import ObjectPath, is_object

TEMPORARY_PREFIX: Final = ".put-"

# Reasons why a disk refuses a second name for a file: another file system, or no hard links.
_NO_LINKS: Final = (
    errno.EXDEV,
    errno.EPERM,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EMLINK,
    errno.ENOSYS,
)
_WRITER: Final = uuid.uuid4().hex[:12]


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raises SinkError if the disk refuses. FileExistsError and FileNotFoundError pass."""
    try:
        yield
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as error:
        raise refused(error, path) from error


def refused(error: OSError, path: Path) -> SinkError:
    """The error for a file or folder of the lake that the disk refuses."""
    return kind_of(error)(
        f"the lake's disk refuses an operation on {path}",
        setting="sink.lake_path",
        expected="a folder that this user may write, on a file system with free space and hard "
        "links (they make a file appear completely or not at all)",
        got=error.strerror or str(error),
        next_step=cure_of(error),
    )


class Storage:
    """Verbs for the files of a lake, here on a local disk. A missing folder of a new file is
    created. Writes raise SinkError if the disk refuses: full, read-only, broken.
    """

    def put_if_absent(self, path: Path, content: bytes) -> bool:
        """Write a new file; return False and change nothing if another one exists."""
        temporary = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
        with disk_errors(path):
            self.make_folder(path.parent)
            try:
                _write(temporary, content)
                try:
                    os.link(temporary, path)
                except FileExistsError:
                    # If the first answer is lost, NFS sends a link request twice, and the second
                    # meets its own success.
                    if not os.path.samefile(temporary, path):
                        # its writer may have been killed before it did this
                        self.make_durable(path.parent)
                        return False
            finally:
                temporary.unlink(missing_ok=True)
            self.make_durable(path.parent)
        return True

    def replace(self, path: Path, content: bytes) -> None:
        """Replace or create a file. Only for the holder of the source's lock."""
        # one name: a crash leaves at most one
        temporary = path.parent / f"{TEMPORARY_PREFIX}{path.name}"
        with disk_errors(path):
            self.make_folder(path.parent)
            try:
                _write(temporary, content)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self.make_durable(path.parent)

    def names(self, folder: Path) -> list[str]:
        """Names right below a folder; [] if it does not exist."""
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self, folder: Path) -> list[Path]:
        """All below a folder, hidden ones too, in any depth; [] if it does not exist."""
        return [Path(at) / name for at, _, names in os.walk(folder) for name in names]

    def folders(self, folder: Path) -> list[Path]:
        """All below a folder, the deepest first; an object store has none."""
        return [Path(at) for at, _, _ in os.walk(folder, topdown=False) if at != str(folder)]

    def written_s(self, folder: Path) -> dict[str, float]:
        """When each file right below a folder was written, by name, since the epoch."""
        written_s = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # it leads nowhere, or was removed meanwhile
                    written_s[entry.name] = entry.stat().st_mtime
        return written_s

    def remove(self, path: Path) -> None:
        """Remove a file, durably."""
        with disk_errors(path):
            path.unlink(missing_ok=True)
        self.make_durable(path.parent)

    def remove_tree(self, folder: Path, *, check: Callable[[], None] = lambda: None) -> int:
        """The number of files. `check`: called once the content is listed. A process that has
        lost the lock by then must not remove files of the new holder.
        """
        check()  # a lock on a disk cannot be lost
        removed = 0
        with disk_errors(folder):
            for parent, folders, files in os.walk(folder, topdown=False):
                for name in files:
                    os.unlink(os.path.join(parent, name))
                for name in folders:
                    os.rmdir(os.path.join(parent, name))
                removed += len(files)
            if folder.is_dir():
                folder.rmdir()
        return removed

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, durably, unless it exists."""
        created = []
        at = folder
        while not at.is_dir():
            created.append(at)
            at = at.parent
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.make_durable(*(one.parent for one in reversed(created)))

    def create(self, path: Path) -> IO[bytes]:
        """Open a stream into a new file, to be ended by `finish`. Raises FileExistsError."""
        self.make_folder(path.parent)
        with disk_errors(path):
            return path.open("xb")

    def finish(self, stream: IO[bytes]) -> None:
        """Close the stream; the file is whole, and durable except for its name (`make_durable`)."""
        if not stream.closed:
            with disk_errors(Path(stream.name)):
                stream.flush()
                os.fsync(stream.fileno())
                stream.close()

    def make_readable(self, stream: IO[bytes]) -> None:
        """By the file's name; in an object store that ends the stream."""
        if not stream.closed:
            with disk_errors(Path(stream.name)):
                stream.flush()

    def make_durable(self, *folders: Path) -> None:
        for folder in folders:
            with disk_errors(folder):
                sync(folder, os.O_DIRECTORY)

    def move(self, path: Path, target: Path) -> None:
        """Give a file another name."""
        with disk_errors(target):
            os.replace(path, target)

    def share(self, path: Path, target: Path) -> None:
        """Copy a whole file, as if written now, unless `target` exists. The name is durable
        after `make_durable`. Raises FileNotFoundError.
        """
        self.make_folder(target.parent)
        with disk_errors(target):
            os.utime(path)  # before it has the name, because a vacuum goes by this time
            with suppress(FileExistsError):
                try:
                    os.link(path, target)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    self._copy(path, target)
            os.utime(target)

    def _copy(self, path: Path, target: Path) -> None:
        if target.exists():
            return
        # one name: a crash leaves at most one
        temporary = target.parent / f"{TEMPORARY_PREFIX}{target.name}"
        shutil.copyfile(path, temporary)
        sync(temporary)
        temporary.replace(target)

    def digest(self, path: Path) -> tuple[int, str]:
        """Bytes and sha256. Raises FileNotFoundError."""
        with path.open("rb") as stream:
            return os.fstat(stream.fileno()).st_size, hashlib.file_digest(
                stream, "sha256"
            ).hexdigest()

    def arrow_source(self, path: Path) -> Any:
        """What Arrow's Parquet reader opens."""
        return path

    def unique(self, name: str) -> str:
        """Return `name`, made unique to this writer if another could write the same."""
        return name


class _ObjectFiles(Storage):
    """Any bucket, through the `ObjectStorage` of each path. Objects appear whole and durable."""

    def put_if_absent(self, path: Path, content: bytes) -> bool:
        """Write a new object; equal existing content counts as written: see `object_storage`."""
        at = _object(path)
        return at.store.put_if_absent(at.key, content)

    def replace(self, path: Path, content: bytes) -> None:
        """Raises LockError: another process has written it since this one read it."""
        at = _object(path)
        at.store.replace_seen(at.key, content)

    def names(self, folder: Path) -> list[str]:
        at = _object(folder)
        return at.store.names(at.key)

    def files(self, folder: Path) -> list[Path]:
        at = _object(folder)
        return [folder / name[len(at.key) + 1 :] for name in at.store.sizes(at.key)]

    def folders(self, folder: Path) -> list[Path]:
        del folder
        return []

    def written_s(self, folder: Path) -> dict[str, float]:
        at = _object(folder)
        listed = at.store.listed_after(at.key, "")
        return {name: one.written_s for name, one in listed.items() if "/" not in name}

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, folder: Path, *, check: Callable[[], None] = lambda: None) -> int:
        at = _object(folder)
        sizes = at.store.sizes(at.key)
        check()
        at.store.delete(list(sizes))
        if 0 in sizes.values() and at.store.has_any(at.key):
            _remove_markers(at)
        return len(sizes)

    def make_folder(self, folder: Path) -> None:
        """Do nothing: there are no folders."""

    def create(self, path: Path) -> IO[bytes]:
        return path.open("xb")

    def finish(self, stream: IO[bytes]) -> None:
        stream.close()

    def make_readable(self, stream: IO[bytes]) -> None:
        stream.close()

    def make_durable(self, *folders: Path) -> None:
        """Do nothing: an object is durable."""

    def move(self, path: Path, target: Path) -> None:
        path.rename(target)

    def share(self, path: Path, target: Path) -> None:
        at, to = _object(path), _object(target)
        at.store.copy(at.key, to.key)

    def digest(self, path: Path) -> tuple[int, str]:
        at = _object(path)
        return at.store.digest(at.key)

    def arrow_source(self, path: Path) -> Any:
        return path.open("rb")

    def unique(self, name: str) -> str:
        return f"{_WRITER}-{name}"


_LOCAL: Final = Storage()
_OBJECTS: Final = _ObjectFiles()


def _remove_markers(folder: ObjectPath) -> None:
    """Remove Hadoop's folder markers of a tree without files: empty objects whose names end with a
    slash. Delta creates one for a new table's log, and the connector one when the last file of a
    folder is removed. Nothing reads them, but a tree is gone only without them.

    Spark's own connector does it: a process that made such objects has it running. Without it, or
    if it fails, they stay, which loses nothing.
    """
    pyspark: Any = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return
    with suppress(Exception):
        path = context._jvm.org.apache.hadoop.fs.Path(str(folder))
        path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)


def storage_of(path: Path) -> Storage:
    return _OBJECTS if is_object(path) else _LOCAL


def opened(lake: str | Path) -> Path:
    """A path given as text has no settings: its credentials are those of the environment."""
    at: object = (parse_uri(lake) or Path(lake)) if isinstance(lake, str) else lake
    if isinstance(at, LakeUri) and not isinstance(at, ObjectPath):
        at = ObjectPath(at.scheme, at.authority, at.parts, at.storage)
    found: Any = at
    path: Path = found.absolute()
    return path


def check_reachable(lake: Path) -> None:
    """An absent bucket must not pass for a new lake. Raises RuntimeSetupError: no such bucket,
    or no right to list it; LakeUnreachableError.
    """
    if is_object(lake):
        lake.store.has_any("")


def sync(path: Path, flags: int = 0) -> None:
    """Wait until a file, or the names in a folder (O_DIRECTORY), are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _object(path: Path) -> ObjectPath:
    assert is_object(path)
    return path
