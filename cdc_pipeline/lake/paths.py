"""Paths of a source's files in the lake, and how its small files are written.

Rules:
- Tables are at ``lake/<schema>/<table>``; the pipeline's state of a source at
  ``lake/_cdc/<source>/``.
- A name becomes one folder name: letters, digits, ``$``, ``-`` and ``_`` stay, anything else (a
  leading ``_`` too, so that no schema is taken for ``_cdc``) is written as ``~`` and two hex digits
  per UTF-8 byte.
- A name that is then too long for a folder keeps its beginning, followed by ``~~`` and a hash of
  the whole name. No other folder name holds ``~~``, so that the two forms never collide. The
  table's own properties and the cut say which table a folder holds; names are never read back from
  folders.
- Records and cuts are put if absent: a complete file appears under its name at once, or not at all,
  and never replaces another (K16).
- A lake is a folder or in an object store: `storage` has the verbs for both, and paths of both
  behave alike.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import ValidationError

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.storage.storage import TEMPORARY_PREFIX, opened, storage_of
from cdc_pipeline.text.server_messages import said_by
from cdc_pipeline.text.table_names import split_table_name

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import PipelineConfig

_Document = TypeVar("_Document")

STATE_FOLDER: Final = "_cdc"
NUMBER_DIGITS: Final = 20

_FOLDER_NAME_BYTES_MAX: Final = 240
_SHORTENED: Final = "~~"
_HASH_HEX_DIGITS: Final = 32
_ODD = re.compile(r"[^A-Za-z0-9$_-]")
_NUMBERED = re.compile(rf"[0-9]{{{NUMBER_DIGITS}}}\.json")


def folder_name(name: str) -> str:
    """The folder name of a schema, table or journal name, different for each name.

    It is never empty, and has at most 240 ASCII characters.
    """
    escaped = _escaped(name)
    if escaped and len(escaped) <= _FOLDER_NAME_BYTES_MAX:
        return escaped
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_HEX_DIGITS]
    room = _FOLDER_NAME_BYTES_MAX - len(_SHORTENED) - len(digest)
    beginnings = (_escaped(name[:length]) for length in range(min(len(name), room), -1, -1))
    return next(readable for readable in beginnings if len(readable) <= room) + _SHORTENED + digest


def application_id(source: str, target: str, *unique: object) -> str:
    """The id under which a target's commits are in Delta's logs (K2).

    Spark gets it as a setting, in which it would replace a reference such as ``${env:HOME}``: the
    log would have another id than the one that is looked for. Folder names have none.
    """
    parts = (source, *split_table_name(target), *map(str, unique))
    return "/".join(("cdc_pipeline", *map(folder_name, parts)))


def _escaped(name: str) -> str:
    safe = _ODD.sub(lambda match: _escape(match[0]), name)
    return _escape("_") + safe[1:] if safe.startswith("_") else safe


class _InState:
    """A file or folder of a source's own state."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: LakePaths, _kind: object) -> Path:
        return paths.state / self._name


@dataclass(frozen=True, slots=True)
class LakePaths:
    """Paths of one source in one lake.

    Attributes:
        lake: absolute path of the lake, or its address in an object store.
        source: name of the source.
    """

    lake: Path
    source: str

    lock = _InState("writer.lock")
    staging_root = _InState("staging")
    xa = _InState("xa")
    batches = _InState("batches")
    cuts = _InState("cuts")
    tables = _InState("tables")
    cursors = _InState("cursors")  # the table of a `DeltaCursorStore`
    dump_errors = _InState("dump_errors.json")
    first_start = _InState("start.json")
    quarantine = _InState("quarantine")
    schema_history = _InState("schema_history.json")

    def __post_init__(self) -> None:
        object.__setattr__(self, "lake", opened(self.lake))

    @classmethod
    def of(cls, config: PipelineConfig) -> LakePaths:
        """Of a pipeline's source, in its own lake."""
        return cls(config.sink.lake_path, config.name)

    @property
    def state(self) -> Path:
        return self.lake / STATE_FOLDER / self.source

    def staging(self, batch_number: int) -> Path:
        return self.staging_root / f"{batch_number:0{NUMBER_DIGITS}d}"

    def batch(self, batch_number: int) -> Path:
        return numbered(self.batches, batch_number)

    def cut(self, batch_number: int) -> Path:
        return numbered(self.cuts, batch_number)

    def table(self, table: str) -> Path:
        """The folder of a target's table, by its name (see `table_names`)."""
        schema, name = split_table_name(table)
        return self.lake / folder_name(schema) / folder_name(name)


def numbered(folder: Path, number: int) -> Path:
    return folder / f"{number:0{NUMBER_DIGITS}d}.json"


def list_numbers(folder: Path) -> list[int]:
    """The numbers of the small files in `folder`, ascending; [] if it does not exist."""
    return list_numbers_and_remains(folder)[0]


def list_numbers_and_remains(folder: Path) -> tuple[list[int], list[Path]]:
    """The numbers of the small files in `folder`, ascending, and what interrupted writes of such
    files left; both empty if it does not exist.
    """
    names = storage_of(folder).names(folder)
    numbers = [int(name[:NUMBER_DIGITS]) for name in names if _NUMBERED.fullmatch(name)]
    return sorted(numbers), [folder / name for name in names if name.startswith(TEMPORARY_PREFIX)]


def put_if_absent(path: Path, text: str) -> bool:
    """Write `text` durably as a new file; return False and change nothing if one exists. Raises
    SinkError: the file system is full, read-only, or has no hard links.
    """
    return storage_of(path).put_if_absent(path, text.encode())


_OTHER_FORMAT_STEP: Final = (
    "use the version of the program that wrote it, or restore the file from a backup of the lake; "
    "a lake of an older format is made again: remove it and its cursor, then run and snapshot"
)


def read_json(path: Path, *, next_step: str = "restore this file from a backup of the lake") -> str:
    """The text of a small file. Raises LakeStateError: it cannot be read, or is not JSON."""
    try:
        text = path.read_text(encoding="utf-8")
        json.loads(text)
    except (OSError, ValueError) as error:
        raise damaged(path, error, next_step=next_step) from None
    return text


def damaged(path: Path, error: Exception, *, next_step: str) -> LakeStateError:
    return LakeStateError(
        f"a file of the lake's own records is damaged: {path}",
        expected="JSON text, as the pipeline wrote it",
        got=said_by(error),
        next_step=next_step,
    )


def parsed(
    text: str, path: Path, parse: Callable[[str], _Document], *, next_step: str = _OTHER_FORMAT_STEP
) -> _Document:
    """What `parse` makes of the text of a small file. Raises LakeStateError: it refuses it, so that
    the file is of another format.
    """
    try:
        return parse(text)
    except ValidationError as error:
        mistakes = error.errors()
        versions = [mistake["input"] for mistake in mistakes if mistake["loc"] == ("version",)]
        got = "; ".join(f"{'.'.join(map(str, m['loc']))}: {m['msg']}" for m in mistakes[:3])
        got = f"format {versions[0]}" if versions else got
    except (KeyError, TypeError, ValueError) as error:
        got = said_by(error)
    raise LakeStateError(
        f"a file of the lake's own records cannot be read: {path}",
        expected="a format that this version of the program knows",
        got=got,
        next_step=next_step,
    )


def read_document(
    path: Path, parse: Callable[[str], _Document], *, next_step: str = ""
) -> _Document:
    """A small file, parsed; see `read_json` and `parsed`. `next_step` replaces that of both."""
    steps = {"next_step": next_step} if next_step else {}
    return parsed(read_json(path, **steps), path, parse, **steps)


def read_if_there(
    path: Path, parse: Callable[[str], _Document], *, absent: _Document, next_step: str
) -> _Document:
    """A small file, parsed, for one request of a store; `absent` if there is none. Raises as
    `parsed`; OSError: it cannot be read.
    """
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return absent
    return parsed(text, path, parse, next_step=next_step)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file at `path` durably and as a whole. Only for the holder of its lock."""
    storage_of(path).replace(path, content)


def remove_tree(folder: Path, *, check: Callable[[], None] = lambda: None) -> int:
    """Remove a folder with its content; return the number of files.

    `check` is called before any file is removed.
    """
    return storage_of(folder).remove_tree(folder, check=check)


def _escape(text: str) -> str:
    return "".join(f"~{byte:02x}" for byte in text.encode())
