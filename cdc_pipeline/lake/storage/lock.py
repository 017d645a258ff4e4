"""Lock a source for one writer (K16); the system releases the lock when the process dies.

Rules:
- In an object store it is a lease instead (`lease`): nothing there ends with a process.
- The lock is the kernel's `flock` on ``writer.lock``. The file is never removed: two processes
  could lock a removed file.
- The file's content (pid, host, since) is for people and messages only; it decides nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from cdc_pipeline.errors import LockError, RuntimeSetupError
from cdc_pipeline.lake.storage.file_failures import cure_of
from cdc_pipeline.lake.storage.lease import held_lease, holder_of, lease_holder, own_note
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.private_folder import make_private


@contextmanager
def writer_lock(
    path: Path, *, on_lost: Callable[[], None] | None = None
) -> Iterator[Callable[[], None]]:
    """Yields a function that raises LockError once the lock is lost, as only a lease can be;
    `on_lost` is then called as well, in another thread.

    Raises LockError: another process (or another sink of this one) holds it;
    RuntimeSetupError: the folder cannot be written.
    """
    if is_object(path):
        state = path.parent
        with (
            held_lease(path, on_lost=on_lost) as check,
            path.store.fences.held(state.parent.parent.key, state.key, check),
        ):
            path.store.forget_seen(state.key)
            yield check
        return
    try:
        storage_of(path).make_folder(path.parent.parent)
        # rows in staging, quarantine and prepared transactions are below it (K26)
        make_private(path.parent)
        storage_of(path).make_durable(path.parent.parent)
        # O_CLOEXEC (Python's default) keeps the lock from surviving in a JVM that this process
        # started.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RuntimeSetupError(
            f"the lake cannot be written: {path.parent}",
            setting="sink.lake_path",
            got=f"{type(error).__name__}: {error.strerror}",
            next_step=f"{cure_of(error)}; or choose another sink.lake_path",
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockError(
                "another run is writing to this source's lake",
                expected=f"no process holds {path}",
                got=holder_of(os.pread(descriptor, 4096, 0)),
                next_step="wait for that run to end, or stop it; the lock is released when "
                "its process ends",
            ) from None
        with suppress(OSError):  # the content decides nothing
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(own_note()).encode(), 0)
        yield lambda: None
    finally:
        os.close(descriptor)


def lock_holder(path: Path) -> str:
    """ "" if there is none, or if the system does not say. Raises LakeUnreachableError."""
    if is_object(path):
        return lease_holder(path)
    try:
        status = os.stat(path)
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    # "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF"; a waiting one has "->" in the second place.
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    if not any(
        fields[1] == "FLOCK" and fields[5] == place
        for fields in map(str.split, locks)
        if len(fields) > 5
    ):
        return ""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return holder_of(os.pread(descriptor, 4096, 0))
    finally:
        os.close(descriptor)


_POLL_S: Final = 0.5
_POLL_MAX_S: Final = 2.0  # a person waits; in an object store each poll is a few requests

T = TypeVar("T")


def wait_for_lock(
    act: Callable[[], T], *, wait_s: float, on_waiting: Callable[[str], None] = lambda _holder: None
) -> T:
    """LockError if it takes longer than `wait_s`. `on_waiting` gets the holder, once."""
    until_s, pause_s, is_reported = time.monotonic() + wait_s, _POLL_S, False
    while True:
        try:
            return act()
        except LockError as error:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise
            if not is_reported:
                on_waiting(str(error.got or error.what))
            is_reported = True
        time.sleep(min(pause_s, left_s))
        pause_s = min(_POLL_MAX_S, 1.5 * pause_s)
