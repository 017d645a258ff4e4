"""Lock a lake in an object store for one writer: a lease that expires (K16).

    nothing or released --create/update--> held --update, each third of its time--> held --update-->
    released
                                              \\--no update for its whole time--> expired --update
                                              by another--> held

Rules:
- The lease is one object. It changes hands by conditional puts only, so that only one of several
  takers wins. It is never removed, because a delete has no condition.
- *The store's clock says when to try*: once a renewal is due by the time when the object was
  written, against a probe that is written now. The clocks of the hosts need not agree. The probe is
  made only if the lease names another holder.
- *Nobody takes a lease that is renewed*: a taker first watches the object, by its own monotonic
  clock, for as long as the holder trusts a renewal. So a store's clock that is set forward takes no
  lease from a writer that lives, and one that is set back keeps none for a writer that is dead.
- *The holder stops first.* It counts from before the request that renewed the lease, by a clock
  that also runs while the machine sleeps. It treats the lease as lost at two thirds of its time, or
  as soon as an update is refused.
- `check` precedes each step that acts on the lake, and `on_lost` is called as soon as the loss is
  noticed, to stop what runs. If a process is stopped between a check and its step for longer than
  the last third, other guards remain: records and cuts are put if absent on the batch number,
  staged files have names of their own writer, and Delta checks whether a commit exists before it
  makes one (docs/lake/storage.md).
- A holder whose process on this very machine has ended (same boot, same namespace of processes, no
  process with its id and start time) has lost the lease at once, so that a rerun after a crash need
  not wait.
- A store that does not honour the conditions is refused before anything else is written.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from cdc_pipeline.errors import CdcError, LakeUnreachableError, LockError, RuntimeSetupError
from cdc_pipeline.lake.storage.object_path import ObjectPath
from cdc_pipeline.lake.storage.object_storage import ObjectStorage, Tag
from cdc_pipeline.processes import is_gone, process_mark

_NEXT_STEP: Final = (
    "wait for that run to end, or stop it; if it was killed, its lease expires and the next "
    "start takes over"
)
_UPDATES_MAX: Final = 3


@contextmanager
def held_lease(
    path: ObjectPath, *, on_lost: Callable[[], None] | None = None
) -> Iterator[Callable[[], None]]:
    """Yields `check`, which raises LockError once the lease is lost; `on_lost` is then called
    once as well, in another thread. What the context raises once the lease is lost is the
    cause of a LockError: it comes from what the next holder has written.

    Raises LockError: another run holds it, or has taken it; RuntimeSetupError: the lake
    cannot be written, or its store does not honour conditions; LakeUnreachableError.
    """
    lease = _Lease(path, on_lost or (lambda: None))
    lease.take()
    try:
        yield lease.check
    except Exception as error:
        if not isinstance(error, LockError):
            lease.check(cause=error)
        raise
    finally:
        lease.release()


def lease_holder(path: ObjectPath) -> str:
    """ "" if there is none. By the machine's own clock: for people only. Raises
    LakeUnreachableError.
    """
    try:
        content = path.store.read(path.key)
    except FileNotFoundError:
        return ""
    note = _parsed(content)
    written = path.store.modified_at(path.key)
    if note.get("released") or is_gone(str(note.get("process", ""))) or written is None:
        return ""
    age_s = (datetime.now(UTC) - written).total_seconds()
    return holder_of(content) if age_s < _seconds(note, path.storage.lease_s) else ""


class _Lease:
    def __init__(self, path: ObjectPath, on_lost: Callable[[], None]) -> None:
        self._path = path
        self._on_lost = on_lost
        self._time_s = path.storage.lease_s
        self._store = self._opened()
        self._note = {
            **own_note(),
            "owner": uuid.uuid4().hex,
            "lease_s": self._time_s,
            "process": process_mark(os.getpid()),
        }
        self._renewals = 0
        self._tag: Tag = {}
        self._good_until_s = self._renew_at_s = 0.0
        self._lost = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def _opened(self, *, answer_s: float | None = None) -> ObjectStorage:
        at, retry_s = self._path, self._path.storage.retry_s
        if answer_s is not None:
            retry_s = min(retry_s, answer_s)
        return ObjectStorage(
            at.scheme, at.authority, at.storage, retry_s=retry_s, answer_s=answer_s
        )

    # -- taking and giving back --------------------------------------------------------------------

    def take(self) -> None:
        began_s = _now_s()
        tag = self._store.create(self._path.key, self._content())
        if tag is None:
            free = None
            with suppress(FileNotFoundError):  # a person removed it just now
                free = self._free()
            began_s, key = _now_s(), self._path.key
            tag = (
                self._store.create(key, self._content())
                if free is None
                else self._store.update(key, self._content(), tag=free)
            )
        if tag is None:
            content, tag = self._there()
            if not self._is_own(content):
                raise self._held_by_other(content)
        self._tag = tag
        self._is_good_from(began_s)
        self._see_that_conditions_hold()
        # a renewal that has no answer must leave time for another
        self._store = self._opened(answer_s=self._time_s / 6)
        if _now_s() >= self._renew_at_s:  # the store was slow: nobody has taken it meanwhile
            self._renew()
        self._thread.start()

    def _free(self) -> Tag:
        """Raises LockError: it is held; FileNotFoundError: there is none any more."""
        content, tag = self._read()
        note = _parsed(content)
        if self._is_own(content):  # the answer to the put that took it was lost
            return tag
        if not note.get("released") and not is_gone(str(note.get("process", ""))):
            age_s, time_s = self._age_s(), _seconds(note, self._time_s)
            if 0 <= age_s < time_s / 3:
                raise self._held_by_other(content, age_s=age_s)
            self._see_that_nobody_renews(content, time_s)
        return tag

    def _see_that_nobody_renews(self, content: bytes, time_s: float) -> None:
        """For as long as its holder trusts a renewal. Raises LockError once it changes."""
        until_s = _now_s() + time_s * 2 / 3
        while _now_s() < until_s:
            self._ended.wait(time_s / 12)
            there, _ = self._read()
            if there != content:
                raise self._held_by_other(there)

    def _see_that_conditions_hold(self) -> None:
        stale = {name: "0" if value.isdecimal() else '"0"' for name, value in self._tag.items()}
        if (
            self._store.create(self._path.key, self._content()) is not None
            or self._store.update(self._path.key, self._content(), tag=stale) is not None
        ):
            raise RuntimeSetupError(
                f"the object store ignores the conditions of a write: {self._path}",
                setting="sink.storage.endpoint",
                expected="writes refused with 412 if their If-None-Match or If-Match does not hold",
                next_step="use a store, or a version of it, with conditional writes; without "
                "them two runs could write at once",
            )

    def release(self) -> None:
        """Release it, so that the next run need not wait; if that fails, it expires."""
        self._ended.set()
        self._thread.join()
        if not self._lost:
            with suppress(CdcError):
                self._update(self._content(released=True))

    # -- keeping -----------------------------------------------------------------------------------

    def check(self, *, cause: Exception | None = None) -> None:
        """`cause`: what a loss is the reason of. Raises LockError: the lease is lost."""
        if self._is_lost():
            raise LockError(
                "this run has lost the lease of its source and stops before it writes",
                expected=f"{self._path} renewed every {self._time_s / 3:g} s",
                got=self._lost,
                next_step="start the run again: it continues from the lake's own state",
            ) from cause

    def _is_lost(self) -> bool:
        if not self._lost and _now_s() >= self._good_until_s:
            self._lost = "it could not be renewed in time"
        return bool(self._lost)

    def _keep(self) -> None:
        # Checked more often than renewed: a machine that wakes up notices an expired lease at once,
        # and a renewal that failed is tried again at once.
        while not self._ended.wait(self._time_s / 12):
            if not self._is_lost() and _now_s() >= self._renew_at_s:
                self._renew()
            if self._is_lost():
                self._on_lost()
                return

    def _renew(self) -> None:
        began_s = _now_s()
        self._renewals += 1
        try:
            other = self._update(self._content())
        except CdcError:
            return  # the next renewal tries again while there is time; `check` counts
        if other:
            self._lost = other
        else:
            self._is_good_from(began_s)

    def _is_good_from(self, began_s: float) -> None:
        self._good_until_s = began_s + self._time_s * 2 / 3
        self._renew_at_s = began_s + self._time_s / 3

    def _update(self, content: bytes) -> str:
        """Who has taken it, "" if nobody has. What this very lease wrote last need not be what
        its holder knows: the answer to a put may be lost. Raises LakeUnreachableError.
        """
        tag = self._tag
        for _ in range(_UPDATES_MAX):
            now = self._store.update(self._path.key, content, tag=tag)
            if now is not None:
                self._tag = now
                return ""
            there, tag = self._there()
            if there == content:
                self._tag = tag
                return ""
            if not self._is_own(there):
                return f"taken over: {holder_of(there)}" if tag else "its object was removed"
        raise LakeUnreachableError(
            f"the object store refuses to replace an object as if it had changed: {self._path}",
            next_step="start the run again",
        )

    # -- what the object says ----------------------------------------------------------------------

    def _content(self, *, released: bool = False) -> bytes:
        return json.dumps({**self._note, "renewals": self._renewals, "released": released}).encode()

    def _read(self) -> tuple[bytes, Tag]:
        return self._store.read_with_tag(self._path.key)

    def _there(self) -> tuple[bytes, Tag]:
        """What is there, with its tag; nothing, and no tag, if it was removed."""
        try:
            return self._read()
        except FileNotFoundError:
            return b"", {}

    def _is_own(self, content: bytes) -> bool:
        return bool(_parsed(content).get("owner") == self._note["owner"])

    def _age_s(self) -> float:
        """By the store's clock, whose finest step is a second; below 0 if that was set back."""
        written = self._store.modified_at(self._path.key)
        probe = self._path.with_name(f"writer.probe-{self._note['owner']}").key
        self._store.replace(probe, b"")
        now = self._store.modified_at(probe)
        self._store.delete([probe])
        if written is None or now is None:
            return 0.0
        since_s = (now - written).total_seconds()
        return since_s if since_s < -1 else max(0.0, since_s - 1)

    def _held_by_other(self, content: bytes, *, age_s: float = 0.0) -> LockError:
        left_s = max(0.0, _seconds(_parsed(content), self._time_s) - age_s)
        return LockError(
            "another run is writing to this source's lake",
            expected=f"no process holds {self._path}",
            got=f"{holder_of(content)}; if it is dead, the lease expires in {left_s:.0f} s",
            next_step=_NEXT_STEP,
        )


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(note: dict[str, Any], default_s: float) -> float:
    found = note.get("lease_s")
    return float(found) if isinstance(found, int | float) else default_s


def own_note() -> dict[str, Any]:
    """Who holds a lock or a lease: this process, since now."""
    since = datetime.now(UTC).isoformat()
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": since}


def holder_of(content: bytes) -> str:
    """Who wrote such a note, in words."""
    note = _parsed(content)
    if "host" not in note:
        return "held by a process that has written no readable note yet"
    return f"held by process {note.get('pid')} on {note.get('host')} since {note.get('since')}"


def _now_s() -> float:
    """Of a clock that also runs while the machine sleeps."""
    return (
        time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()
    )
