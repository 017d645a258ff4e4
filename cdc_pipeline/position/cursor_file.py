"""A cursor in a file, for runs without Dagster (SPEC P2).

Rules:
- ``cursor.json`` is one document with a checksum. It is replaced as a whole (new file, fsync,
  rename, fsync of the folder): after a crash it is the older or the newer document, never a part of
  one.
- A truncated or damaged document, or one of a newer form, is an error. "No cursor" means that the
  file does not exist.
- ``history.jsonl`` gets one line per cursor, after the cursor itself has taken effect. After a
  crash in between, the last line is missing or truncated: `history` still returns the newest
  cursor, and the next write repairs the file.
- The history is bounded in bytes: at the bound only its newer half is kept.
- Writers lock ``cursor.lock``, so that compare-and-swap is safe among processes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.clock import now_us
from cdc_pipeline.errors import CursorError
from cdc_pipeline.position.cursor import (
    CursorEntry,
    CursorGuard,
    CursorState,
    StoredCursor,
    cursor_document,
    parse_cursor,
)
from cdc_pipeline.private_folder import make_private
from cdc_pipeline.text.server_messages import said_by

FORM_VERSION: Final = 1
_HISTORY_BYTES_MAX: Final = 8 << 20

_NEXT_STEP = (
    "restore the file from a backup, or remove it: the next run rebuilds the cursor from "
    "the lake's last cut"
)


def _no_step(_name: str) -> None:
    pass


class FileCursorStore:
    """`folder`: created by the first write. `on_step`: called after "locked", "temporary_written",
    "replaced" and "appended".
    """

    def __init__(
        self,
        folder: Path,
        *,
        source: str,
        history_bytes_max: int = _HISTORY_BYTES_MAX,
        on_step: Callable[[str], None] = _no_step,
    ) -> None:
        self.file = folder / "cursor.json"
        self.history_file = folder / "history.jsonl"
        self._folder = folder
        self._history_bytes_max = history_bytes_max
        self._on_step = on_step
        self._guard = CursorGuard(source)

    def read(self) -> StoredCursor | None:
        """CursorError: it is truncated, damaged, of a newer form, or belongs to another source."""
        document = self._document()
        return self._guard.checked(
            None if document is None else self._entry(document, str(self.file)).cursor
        )

    def write(
        self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False
    ) -> None:
        """Make `cursor` the latest, durably; see `CursorStore.write`."""
        self._guard.check_source(cursor)
        try:
            with self._locked():
                before = self._document()
                latest = None if before is None else self._entry(before, str(self.file)).cursor
                self._guard.check_write(cursor, latest, replace=replace)
                text = _text_of(cursor, metadata)
                self._replace(self.file, text)
                self._on_step("replaced")
                self._guard.saw(cursor)
                self._append(text, before)
                self._on_step("appended")
        except OSError as error:
            raise CursorError(
                f"the cursor's file cannot be written: {self.file}",
                expected="a writable folder with free space",
                got=f"{type(error).__name__}: {error.strerror}",
                next_step="free disk space, or give the account of this process write "
                "permission there",
            ) from None

    def history(self, limit: int) -> list[CursorEntry]:
        newest = self._document()
        lines = self._history_lines()
        if newest is not None and (not lines or lines[-1] != newest):
            lines.append(newest)
        entries = []
        for number in range(len(lines) - 1, max(-1, len(lines) - 1 - limit), -1):
            where = (
                str(self.file)
                if lines[number] == newest
                else f"{self.history_file}, line {number + 1}"
            )
            entries.append(self._entry(lines[number], where))
        return entries

    # -- the document ------------------------------------------------------------------------------

    def _document(self) -> str | None:
        try:
            return self.file.read_text(encoding="utf-8").removesuffix("\n")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(str(self.file), said_by(error)) from None

    def _entry(self, text: str, where: str) -> CursorEntry:
        try:
            document = json.loads(text)
            form = document["form"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(where, f"{len(text)} characters, {said_by(error)}") from None
        if form != FORM_VERSION:
            raise CursorError(
                f"the cursor in {where} was written by another version of this program",
                expected=f"form {FORM_VERSION}",
                got=f"form {form}",
                next_step="use the version of the program that wrote it",
            )
        body = {name: value for name, value in document.items() if name != "sha256"}
        if (
            document.get("sha256") != _checksum(body)
            or not {"cursor", "metadata", "at_us"} <= body.keys()
        ):
            raise self._damaged(where, "the checksum does not match")
        cursor = parse_cursor(json.dumps(body["cursor"]), where=where, next_step=_NEXT_STEP)
        run_id = str(body["metadata"].get("run_id", ""))
        return CursorEntry(
            cursor=cursor,
            at_us=body["at_us"],
            where=where,
            run_id=run_id,
            metadata=body["metadata"],
        )

    @staticmethod
    def _damaged(where: str, got: str) -> CursorError:
        return CursorError(
            f"the cursor in {where} is truncated or damaged",
            expected="one complete JSON document with its checksum",
            got=got,
            next_step=_NEXT_STEP,
        )

    def _replace(self, file: Path, text: str) -> None:
        # One name suffices: writers are locked out, and a crash leaves at most one file.
        temporary = file.with_suffix(".new")
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        self._on_step("temporary_written")
        temporary.replace(file)
        _sync_folder(self._folder)

    # -- history -----------------------------------------------------------------------------------

    def _history_lines(self) -> list[str]:
        try:
            text = self.history_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return text.split("\n")[:-1]

    def _append(self, text: str, before: str | None) -> None:
        """Append a line, and before it the line `before` if a crash prevented its write."""
        lines = self._tail()
        added = [text] if before is None or before in lines else [before, text]
        addition = "".join(line + "\n" for line in added).encode()
        size_bytes = self.history_file.stat().st_size if self.history_file.exists() else 0
        if size_bytes + len(addition) > self._history_bytes_max:
            self._replace(self.history_file, "\n".join([*self._newer_half(), *added]))
            return
        with self.history_file.open("ab") as stream:
            stream.write(addition)
            stream.flush()
            os.fsync(stream.fileno())
        if not size_bytes:
            _sync_folder(self._folder)

    def _tail(self) -> list[str]:
        """Cut off a truncated line at the end and return the last complete line."""
        try:
            stream = self.history_file.open("rb+")
        except FileNotFoundError:
            return []
        with stream:
            size_bytes = stream.seek(0, os.SEEK_END)
            block_bytes, tail = 1 << 16, b""
            while True:
                block_bytes = min(block_bytes, size_bytes)
                stream.seek(size_bytes - block_bytes)
                tail = stream.read(block_bytes)
                whole = tail[: tail.rfind(b"\n") + 1]
                if block_bytes == size_bytes or whole.count(b"\n") > 1:
                    break
                block_bytes *= 2
            if len(whole) < len(tail):
                stream.truncate(size_bytes - len(tail) + len(whole))
                os.fsync(stream.fileno())
            return whole.decode("utf-8", errors="replace").split("\n")[-2:-1]

    def _newer_half(self) -> list[str]:
        kept: list[str] = []
        size_bytes = 0
        for line in reversed(self._history_lines()):
            size_bytes += len(line.encode()) + 1
            if size_bytes > self._history_bytes_max // 2:
                break
            kept.append(line)
        return kept[::-1]

    # -- folder ------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        made = [at for at in (self._folder, *self._folder.parents) if not at.exists()]
        make_private(self._folder)
        for at in reversed(made):
            _sync_folder(at.parent)
        descriptor = os.open(self._folder / "cursor.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._on_step("locked")
            yield
        finally:
            os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text_of(cursor: CursorState, metadata: dict[str, object]) -> str:
    # Metadata is for people: values without a JSON form become text.
    plain = json.loads(json.dumps(metadata, default=str))
    body: dict[str, Any] = {
        "form": FORM_VERSION,
        "at_us": now_us(),
        "metadata": plain,
        "cursor": cursor_document(cursor),
    }
    return json.dumps({**body, "sha256": _checksum(body)}, ensure_ascii=False)


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
