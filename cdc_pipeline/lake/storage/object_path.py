"""Path in an object store, with the part of `pathlib.Path` that lakes use.

Rules:
- For the type checker a path in a lake is a `pathlib.Path`, whether it is one or an `ObjectPath`:
  code for one works for the other. What an object store lacks (locks, links, permissions) is not
  here: using it raises. In particular it is no `os.PathLike`: `os` and `open` never take it for a
  local file by mistake.
- There are no folders: a folder exists while an object is below it; making and removing one does
  nothing.
- An object appears whole when its stream is closed, or not at all.
- Absence is `FileNotFoundError`, as on a disk. Every other failure of the store is a `CdcError`
  that names the setting (see `object_storage`), so that a refused request is never taken for a
  damaged or absent file.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from io import TextIOWrapper
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, TypeGuard

from cdc_pipeline.config.storage_config import LakeUri

if TYPE_CHECKING:
    from cdc_pipeline.lake.storage.object_storage import ObjectStorage


class ObjectPath(LakeUri):
    """A `LakeUri` that can be read and written; see the module."""

    __slots__ = ()

    @property
    def store(self) -> ObjectStorage:
        """Its store, shared by all paths of its bucket with the same settings."""
        from cdc_pipeline.lake.storage.object_storage import storage_for

        return storage_for(self.scheme, self.authority, self.storage)

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        return self.store.size(self.key) is not None

    def is_dir(self) -> bool:
        return self.store.has_any(self.key)

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield objects and folders right below, by name; nothing if the folder does not exist."""
        return (self._at((*self.parts, name)) for name in self.store.names(self.key))  # type: ignore[misc]

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        if "/" in pattern or "**" in pattern:
            raise ValueError(f"{pattern!r}: only names directly below a folder can be matched")
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def stat(self) -> SimpleNamespace:
        """Return `st_size` only. Raises FileNotFoundError."""
        size = self.store.size(self.key)
        if size is None:
            raise FileNotFoundError(2, "no such object", str(self))
        return SimpleNamespace(st_size=size)

    def read_bytes(self) -> bytes:
        return self.store.read(self.key)

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> int:
        self.store.replace(self.key, data)
        return len(data)

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        return self.write_bytes(text.encode(encoding))

    def open(self, mode: str = "r", encoding: str | None = None) -> IO[bytes] | IO[str]:
        """``r``, ``rb``; ``wb`` and ``xb``, whose object appears when it is closed."""
        if mode in ("r", "rt", "rb"):
            stream = self.store.open_input(self.key)
            return stream if mode == "rb" else TextIOWrapper(stream, encoding=encoding or "utf-8")
        if mode in ("wb", "xb"):
            return self.store.open_output(self.key, is_new=mode == "xb")
        raise ValueError(f"mode {mode!r}: expected r, rb, wb or xb")

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok and self.store.size(self.key) is None:
            raise FileNotFoundError(2, "no such object", str(self))
        self.store.delete([self.key])

    def rename(self, target: ObjectPath) -> ObjectPath:
        self.store.rename(self.key, target.key)
        return target

    replace = rename

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """There are no folders."""

    def rmdir(self) -> None:
        """There are no folders."""


def is_object(path: object) -> TypeGuard[ObjectPath]:
    return isinstance(path, ObjectPath)
