"""Invalidate cached kernels when any code that was compiled into them has changed.

Rules:
- A kernel is compiled together with the helpers that it calls, also from other files. numba checks
  only the kernel's own file: after an upgrade that changes a helper elsewhere, it would silently
  run the old code. So the stamp of a kernel covers its file and all files of `binlog` that it
  imports, directly or not.
- It stays our own, because numba's loads 25 % of a process's start dearer (0.60 CPU-s to the first
  rows instead of 0.48), which a run without changes pays too; and a folder of kernels for each
  version would have to be cleared.
- Only kernels of this package are concerned; numba chooses where to store them (NUMBA_CACHE_DIR,
  the folder of the file, the user's cache).
"""

from __future__ import annotations

import hashlib
import re
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from numba.core import caching
from numba.core.runtime.nrt import rtsys

_FOLDER: Final = Path(__file__).parents[1]
_IMPORT: Final = re.compile(
    r"^\s*from\s+(cdc_pipeline[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)", re.MULTILINE
)


@cache
def stamp(file: Path) -> str:
    """A hash of `file` and of all files of `binlog` that it imports, directly or not."""
    found: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one], imported = _read(one)
            waiting += imported
    return hashlib.sha256(b"".join(found[one] for one in sorted(found))).hexdigest()


@cache
def _read(file: Path) -> tuple[bytes, list[Path]]:
    source = file.read_bytes()
    imported = []
    for module, names in _IMPORT.findall(source.decode("utf-8")):
        base = _FOLDER.parent.joinpath(*module.split(".")[1:])
        imported += [
            base.with_suffix(".py"),
            *(base / f"{name}.py" for name in re.findall(r"\w+", names)),
        ]
    kept = [one for one in imported if _FOLDER in one.parents and one.is_file()]
    return hashlib.sha256(source).digest(), kept


class _StampedByClosure:
    """Mixin for numba's locators: accepts only files of `binlog`, with this stamp."""

    _py_file: str

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        if _FOLDER not in Path(py_file).parents:
            return None
        return super().from_function(py_func, py_file)  # type: ignore[misc]

    def get_source_stamp(self) -> str:
        return stamp(Path(self._py_file))


class KernelCache:
    """Cache of one kernel, which costs nothing before it is used, and loads without what only
    compiling needs.

    numba's own cache looks for its folder when a function is defined, though most functions are
    only parts of others. Before it loads a function it makes its context ready to compile: it
    imports and registers the implementation of all that it can compile, which costs more than
    loading all kernels. A kernel that is not in the cache is compiled by numba, which makes the
    context ready itself.
    """

    def __init__(self, function: Any) -> None:
        self._function = function

    @cached_property
    def _numba_cache(self) -> Any:
        function_cache: Any = caching.FunctionCache  # not typed
        return function_cache(self._function)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled kernel for a signature; None if it is not in the cache."""
        rtsys.initialize(target_context)  # what the machine code itself calls
        return self._numba_cache._load_overload(signature, target_context)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        self._numba_cache.save_overload(signature, compiled)


def install() -> None:
    """Make numba use these locators first; before the first kernel is defined."""
    known: list[Any] = caching.CacheImpl._locator_classes
    if any(issubclass(one, _StampedByClosure) for one in known):
        return
    bases = (
        caching.UserProvidedCacheLocator,
        caching.InTreeCacheLocator,
        caching.UserWideCacheLocator,
    )
    known[:0] = [type(f"Stamped{base.__name__}", (_StampedByClosure, base), {}) for base in bases]
