"""Which calls of a walk through the product climb: into a module that, by its imports, lies above
the caller's."""

from __future__ import annotations

import ast
import sys
import threading
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import cdc_pipeline

_ROOT = Path(cdc_pipeline.__file__).parent
Call = tuple[str, str, str, str]  # module and function of the caller, then of what it calls


@cache
def _modules() -> dict[str, str]:
    """By file, without the package's own name."""
    return {
        str(file): ".".join(file.relative_to(_ROOT).with_suffix("").parts)
        for file in _ROOT.rglob("*.py")
    }


@cache
def _imports(module: str) -> frozenset[str]:
    names = set(_modules().values())
    tree = ast.parse((_ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    imported = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            of = node.module.partition(".")[2]
            imported |= {of, *(f"{of}.{alias.name}" for alias in node.names)} & names
    return frozenset(imported)


@cache
def _below(module: str) -> frozenset[str]:
    """All that a module imports, directly or not."""
    below, todo = set[str](), [module]
    while todo:
        found = _imports(todo.pop()) - below
        below |= found
        todo += found
    return frozenset(below)


class Walk:
    """Within it, the calls between modules are noted, in threads that begin there too."""

    def __init__(self) -> None:
        self.calls: set[Call] = set()

    @property
    def climbs(self) -> set[Call]:
        return {call for call in self.calls if call[0] in _below(call[2])}

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None:
            return
        to, of = (_modules().get(at.f_code.co_filename, "") for at in (frame, caller))
        if to and of and to != of:
            self.calls.add((of, caller.f_code.co_qualname, to, frame.f_code.co_qualname))

    def __enter__(self) -> Walk:
        _modules()
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
