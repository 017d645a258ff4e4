"""Folders with row data or metadata, which only their owner may read (K26).

Rules:
- New folders have mode 0700. An existing folder that is open to everyone is closed; permissions of
  a group are kept.
- Only folders of this user are changed. A link is never followed and never changed.
- A folder where other users may write (such as the system's temporary directory) is used only if
  neither it nor its parent can belong to them: a link or a folder of another user is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

_SYSTEM_USER: Final = 0


class NotOursError(OSError):
    """A folder is a link, belongs to another user, or is where another user could replace it."""


def make_private(path: Path) -> None:
    """Create the folder at `path` and its parents. If it belongs to this user, remove the
    permissions of everyone else. Raises OSError: it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
        status = path.lstat()
        if (
            stat.S_ISDIR(status.st_mode)
            and status.st_uid == os.geteuid()
            and status.st_mode & 0o007
        ):
            path.chmod(0o700)


def take_private(path: Path) -> None:
    """Make the folder at `path` private after checking who could read or replace it. Raises
    NotOursError; OSError: it cannot be made.
    """
    if not os.path.lexists(path.parent):
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
    _check_parent(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    # Check the opened folder, not its name, which may lead elsewhere a moment later.
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise NotOursError(f"{path} is a link") from None
        raise error from None
    try:
        owner = os.fstat(folder).st_uid
        if owner != os.geteuid():  # its owner could read what root writes there
            raise NotOursError(f"{path} belongs to user {owner}")
        os.fchmod(folder, 0o700)
    finally:
        os.close(folder)


def _check_parent(parent: Path) -> None:
    ours = (os.geteuid(), _SYSTEM_USER)
    for what, found in (("", parent.lstat()), ("the target of the link ", parent.stat())):
        if found.st_uid not in ours:
            raise NotOursError(f"{what}{parent} belongs to user {found.st_uid}")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise NotOursError(f"other users can change {parent}")
