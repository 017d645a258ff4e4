"""Open the journals that a person names: files, directories, standard input, a live log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.errors import CdcError, JournalMissingError
from cdc_pipeline.operations.inspect.journal_stream import (
    JournalStream,
    follow,
    numbered,
    open_stream,
)
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.source.archive.files import journal_files, read_head

STDIN: Final = Path("-")
STDIN_NAME: Final = "stdin"

_SAFE_MARGIN_S: Final = 3600
_MYSQL_WITH_COMMIT_TIMES: Final = re.compile(r"(8|9|\d\d+)\.")


@dataclass(frozen=True, slots=True)
class FileChunk:
    """`name`: for people (`chunk.journal` always has a number); `path`: None for standard input."""

    name: str
    path: Path | None
    chunk: Chunk


def _expand_paths(paths: Sequence[Path]) -> list[Path]:
    """By number; directories are searched, "-" stays. JournalMissingError if there are none."""
    files: list[Path] = []
    for path in paths:
        if path != STDIN and not path.exists():
            raise JournalMissingError("there is no such file or directory", journal=str(path))
        found = journal_files(path) if path != STDIN and path.is_dir() else [path]
        if not found:
            raise JournalMissingError(
                "the directory holds no journals", journal=str(path), expected="binlog.000001 ..."
            )
        files += found
    return files


def read_all(
    paths: Sequence[Path], selection: Selection, *, stdin: BinaryIO | None = None
) -> Iterator[FileChunk]:
    """In order; what cannot match is not opened. CdcError comes after everything before it."""
    files = _expand_paths(paths)
    for index, file in enumerate(files):
        if file != STDIN and _is_skipped(file, files[index + 1 :], selection):
            continue
        name = STDIN_NAME if file == STDIN else file.name
        try:
            if file == STDIN:
                assert stdin is not None
                yield from _read(stdin, name, None)
            else:
                with open_stream(file) as handle:
                    yield from _read(handle, name, file)
        except CdcError as error:
            raise named(error, name) from None


def follow_all(
    path: Path, selection: Selection, *, wait: Callable[[], bool]
) -> Iterator[FileChunk]:
    """Chunks of a log that is being written, until `wait` returns False. Raises as `read_all`."""
    name = path.name
    try:
        for file, chunk in follow(
            path, wait=wait, skips=lambda name: selection.skips_before(numbered(name))
        ):
            name = file.name
            yield FileChunk(name, file, chunk)
    except CdcError as error:
        raise named(error, name) from None


def named(error: CdcError, name: str) -> CdcError:
    """With the journal's name for people."""
    if error.journal == numbered(name):
        error.journal = name
    return error


def _read(handle: BinaryIO, name: str, path: Path | None) -> Iterator[FileChunk]:
    stream = JournalStream(handle, numbered(name))
    for chunk in stream.chunks():
        yield FileChunk(name, path, chunk)
    stream.finish()


def _is_skipped(file: Path, later: Sequence[Path], selection: Selection) -> bool:
    """Whether `file` cannot match, by its name or the begin of the next journal.

    A time excludes a journal only on MySQL 8.0 or later, whose commit times no session can set,
    and with a margin for clocks that differ.
    """
    if selection.skips_before(numbered(file.name)) or selection.skips_after(numbered(file.name)):
        return True
    following = later[0] if later else STDIN
    if selection.from_us is None or following == STDIN or following.parent != file.parent:
        return False
    try:
        head = read_head(following).journal_format
    except CdcError:
        return False  # reported when its turn comes
    has_commit_times = (
        not head.is_mariadb and _MYSQL_WITH_COMMIT_TIMES.match(head.server_version) is not None
    )
    return has_commit_times and head.created_s + _SAFE_MARGIN_S < selection.from_us // 1_000_000
