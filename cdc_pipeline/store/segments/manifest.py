"""The manifest of a folder of segments: which files count, and how far they were acked.

Rules:
- It is replaced as a whole: written beside, then renamed. A segment counts once a manifest names it, and is removed
  only after a manifest that no longer names it.
- JSON with a checksum over its content; a manifest that is not what was written is an error, never an empty store.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.errors import StoreDamagedError
from cdc_pipeline.position.position import Position

MANIFEST_NAME: Final = "manifest.json"
_NEW_NAME: Final = "manifest.json.new"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One segment file.

    Attributes:
        number: grows by one per file; part of the file's name.
        sealed_bytes: its length where nothing is appended any more, else None.
    """

    number: int
    sealed_bytes: int | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What counts in the folder.

    Attributes:
        store: ``file`` or ``mixed``.
        segments: in order.
        ack_sequence, ack_position: what was acked last; -1 and None before the first ack.
        released_sequence, put_sequence: as of the moment of writing; informative.
    """

    store: str
    segments: tuple[SegmentRecord, ...]
    ack_sequence: int
    ack_position: Position | None
    released_sequence: int
    put_sequence: int


def write(folder: Path, manifest: Manifest, *, durable: bool) -> None:
    """Replace the folder's manifest; `durable` waits until the disk has it."""
    content = asdict(manifest)
    document = {"version": _VERSION, "checksum": _checksum(content), "content": content}
    new = folder / _NEW_NAME
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            json.dump(document, file, indent=1)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(new, folder / MANIFEST_NAME)
    if durable:
        sync_folder(folder)


def read(folder: Path) -> Manifest | None:
    """The folder's manifest; None where it has none.

    Raises:
        StoreDamagedError: it cannot be read, or its checksum is wrong.
    """
    try:
        text = (folder / MANIFEST_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _damaged("text in UTF-8", str(error)) from error
    try:
        document = json.loads(text)
        content = document["content"]
        version, checksum = document["version"], document["checksum"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged("a JSON document with version, checksum and content", str(error)) from error
    if version != _VERSION:
        raise _damaged(f"version {_VERSION}", f"version {version}")
    if _checksum(content) != checksum:
        raise _damaged(f"checksum {checksum}", f"checksum {_checksum(content)}")
    position = content["ack_position"]
    return Manifest(
        **{
            **content,
            "segments": tuple(SegmentRecord(**segment) for segment in content["segments"]),
            "ack_position": None if position is None else Position(**position),
        }
    )


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _damaged(expected: str, got: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"the store's {MANIFEST_NAME} is damaged",
        expected=expected,
        got=got,
        next_step="start the store anew, which removes its files, and read again from the cursor",
    )
