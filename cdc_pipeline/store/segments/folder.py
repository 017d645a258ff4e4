"""The private folder of a file or mixed store (K14: raw rows stay local and private).

Rules:
- Mode 0700 and of this user, never a link (K26).
- Only one store uses it at a time. The system releases the lock when the process dies.
- It contains only the store's own files. A folder with other files is refused, and nothing in it is
  removed.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import LockError, StoreError
from cdc_pipeline.private_folder import NotOursError, take_private

_LOCK_NAME: Final = "store.lock"
_OWN_NAME: Final = re.compile(r"segment-\d{8,}\.events|store\.lock")


class SegmentsFolder:
    """The folder at `path`, untouched before `take`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def take(self) -> None:
        """Make it private and lock it, once. LockError: another store uses it; StoreError: it has
        other files, or cannot be created.
        """
        if self._lock is not None:
            return
        try:
            # Check before changing permissions: a folder with other files stays unchanged.
            names = (
                os.listdir(self.path) if self.path.is_dir() and not self.path.is_symlink() else []
            )
            foreign = sorted(name for name in names if not _OWN_NAME.fullmatch(name))
            if foreign:
                raise StoreError(
                    "the store's directory contains files that are not the store's",
                    setting="store.directory",
                    expected="a directory only for the store, empty or not yet created",
                    got=", ".join(foreign[:5]),
                    next_step="give the store a separate directory",
                )
            take_private(self.path)
            lock = os.open(
                self.path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except NotOursError as error:
            raise StoreError(
                "another user could read or replace the store's directory",
                setting="store.directory",
                expected=f"{self.path} is a directory, not a link, of this process's user, "
                f"{os.geteuid()}, in a directory that no other user may change",
                got=str(error),
                next_step="remove it, or set store.directory to a directory of this user",
            ) from None
        except OSError as error:
            raise StoreError(
                "the store's directory cannot be used",
                setting="store.directory",
                expected="a directory that this user may write",
                got=f"{self.path}: {error.strerror}",
                next_step="set store.directory to a local directory with free space",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise LockError(
                "another store uses this directory",
                setting="store.directory",
                got=str(self.path),
                next_step="wait for the other run to end, or give each source a separate directory",
            ) from error
        self._lock = lock

    def give_back(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def segment_path(self, number: int) -> Path:
        return self.path / f"segment-{number:08d}.events"

    def remove_segments(self) -> None:
        """Remove every file of the store except its lock."""
        for name in os.listdir(self.path):
            if name != _LOCK_NAME and _OWN_NAME.fullmatch(name):
                (self.path / name).unlink(missing_ok=True)
