"""Turn refusals by the operating system into errors that say what to do (K22).

Rules:
- One context manager encloses a whole run, so that every step with a file is covered.
- A full disk or a lost permission is fixed from outside: the same run, started again, finishes what
  is recorded.
- Any other refusal may be temporary: no table is suspended for it at once.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeGuard

from cdc_pipeline.errors import LakeDiskError, LakeFullError, SinkError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_IN_THE_WAY: Final = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
_TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)
# Refusals that another process, or the same one later, would not meet at the same file.
_OF_THE_MACHINE: Final = (
    *_TOO_MANY,
    *_FULL,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
)


@contextmanager
def files_failing(lake: Path) -> Iterator[None]:
    """Raises SinkError for an `OSError` of the block: the file, the reason and what fixes it."""
    try:
        yield
    except OSError as error:
        failure = file_failure(error, lake=lake)
        if failure is None:
            raise
        raise failure from error


def file_failure(error: OSError, *, lake: Path | None = None) -> SinkError | None:
    """The error for a refused file; None for a network failure."""
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror | ssl.SSLError):
        return None
    name = error.filename or lake
    return kind_of(error)(
        "a file cannot be used" + (f": {name}" if name else ""),
        setting="sink.lake_path" if lake is not None else None,
        got=error.strerror or str(error),
        next_step=cure_of(error, lake=lake),
    )


def kind_of(error: OSError) -> type[SinkError]:
    if error.errno in _FULL:
        return LakeFullError
    return SinkError if error.errno in (*_REFUSED, *_IN_THE_WAY) else LakeDiskError


def is_refused_by_machine(error: Exception) -> TypeGuard[OSError]:
    """Whether a refusal to read says nothing of the file. One of a bad sector (EIO), or of a file
    that a power cut tore, comes again: that is damage of the file.
    """
    return isinstance(error, OSError) and error.errno in _OF_THE_MACHINE


def cure_of(error: OSError, *, lake: Path | None = None) -> str:
    number = error.errno
    again = "then start the same command again: it continues where this one stopped"
    if number in _FULL:
        return f"free space on that disk, or raise the quota, {again}"
    if number in _REFUSED:
        return f"give this user permission to read and write there, {again}"
    if number in _IN_THE_WAY:
        place = f" (sink.lake_path is {lake})" if lake is not None else ""
        return (
            "there is a file where a folder should be, or a folder where a file should "
            f"be{place}: move it away, or name another folder, {again}"
        )
    if number == errno.ENOENT and lake is not None and not lake.exists():
        return f"name another folder: {lake} (sink.lake_path) cannot be made, {again}"
    if number in _TOO_MANY:
        return f"let this user open more files (ulimit -n), {again}"
    return f"check the disk and the system's log, {again}"
