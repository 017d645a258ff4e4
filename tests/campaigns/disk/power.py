"""What a disk may hold after a power cut, by the log of a `Disk`.

A strict disk: what was not waited for may be there or not, each name and each file for itself. A
file that was not waited for since it was written may be whole, empty, cut short, or zeros behind
what was waited for; a name that was given, taken away or changed since its folder was waited for
may be as before, with all that lies below it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaigns.disk.disk import Call


@dataclass(eq=False)
class _Node:
    """A file or folder, whatever its names are. `durable_bytes`: of a file: those that were waited
    for; `is_dirty` if others may follow. `names`: of a folder, as they were when it was waited
    for last; `changes`: of a folder, since then: a name, and what it leads to; None: nothing.
    `grave`: where a file that has lost its name is kept.
    """

    is_folder: bool
    is_dirty: bool = False
    durable_bytes: int = 0
    names: dict[str, _Node] = field(default_factory=dict)
    changes: list[tuple[str, _Node | None]] = field(default_factory=list)
    grave: str = ""


class PowerCut:
    """A disk below `root`, which was whole and durable before the calls; `calls` are taken one
    after the other."""

    def __init__(self, root: Path, before: Path) -> None:
        """`before`: a copy of what `root` held before the first call."""
        self._root = root
        self._now: dict[Path, _Node] = {root: self._walked(root, before)}
        self._fill(root, before)

    def _walked(self, _path: Path, at: Path) -> _Node:
        return _Node(True) if at.is_dir() else _Node(False, durable_bytes=at.stat().st_size)

    def _fill(self, path: Path, at: Path) -> None:
        for child in at.iterdir():
            node = self._now[path / child.name] = self._walked(path, child)
            self._now[path].names[child.name] = node
            if node.is_folder:
                self._fill(path / child.name, child)

    def take(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._take(call)

    def _take(self, call: Call) -> None:
        path = call.path
        if call.name in ("create", "mkdir"):
            self._enter(path, _Node(call.name == "mkdir", is_dirty=call.name == "create"))
        elif call.name in ("write", "truncate"):
            self._now[path].is_dirty = True
        elif call.name == "sync":
            node = self._now[path]
            if node.is_folder:
                node.names = {name: n for name, n in self._names_now(node).items() if n is not None}
                node.changes = []
            else:
                node.is_dirty, node.durable_bytes = False, int(call.second)
        elif call.name == "rename":
            node, to = self._now[path], Path(call.second)
            assert not node.is_folder, f"a folder is renamed: {path}"
            if to in self._now:
                self._now[to].grave = call.third
            self._leave(path)
            self._enter(to, node)
        elif call.name == "link":
            self._enter(Path(call.second), self._now[path])
        elif call.name in ("unlink", "rmdir"):
            self._now[path].grave = call.second
            self._leave(path)
        else:
            raise AssertionError(f"a call that nobody can follow: {call}")

    def _enter(self, path: Path, node: _Node) -> None:
        self._now[path] = node
        self._now[path.parent].changes.append((path.name, node))

    def _leave(self, path: Path) -> None:
        del self._now[path]
        self._now[path.parent].changes.append((path.name, None))

    @staticmethod
    def _names_now(node: _Node) -> dict[str, _Node | None]:
        return {**node.names, **dict(node.changes)}

    def check(self, live: Path) -> None:
        """Raises AssertionError where the calls do not lead to what is there: then some of them
        were not seen."""
        there = {self._root / path.relative_to(live) for path in (live, *live.rglob("*"))}
        assert there == set(self._now), f"calls that nobody saw: {there ^ set(self._now)}"
        for path, node in self._now.items():
            size = (live / path.relative_to(self._root)).stat().st_size
            assert node.is_folder or node.is_dirty or size == node.durable_bytes, (
                f"writes that nobody saw: {path}"
            )

    def unsynced(self) -> Iterator[Path]:
        """What the disk may lack or hold otherwise: files, and folders whose names may be
        others."""
        for path, node in self._now.items():
            if node.is_dirty or node.changes:
                yield path

    def strike(self, live: Path, grave: Path, into: Path, choose: random.Random) -> None:
        kept = choose.choice((0.0, 0.3, 0.7, 0.9, 1.0))
        contents = {node: live / path.relative_to(self._root) for path, node in self._now.items()}
        self._write(self._now[self._root], into, contents, grave, choose, kept)

    def _write(
        self,
        node: _Node,
        into: Path,
        contents: dict[_Node, Path],
        grave: Path,
        choose: random.Random,
        kept: float,
    ) -> None:
        into.mkdir()
        names: dict[str, _Node | None] = dict(node.names)
        names.update((name, to) for name, to in node.changes if choose.random() < kept)
        for name, to in sorted(names.items()):
            if to is None:
                continue
            if to.is_folder:
                self._write(to, into / name, contents, grave, choose, kept)
                continue
            content = contents.get(to) or grave / to.grave
            shutil.copyfile(content, into / name)
            if to.is_dirty:
                _tear(into / name, to.durable_bytes, choose)


def _tear(file: Path, durable_bytes: int, choose: random.Random) -> None:
    size = file.stat().st_size
    durable = min(durable_bytes, size)
    fate = choose.choice(("whole", "whole", "lost", "half", "zeros"))
    if fate in ("lost", "zeros"):
        os.truncate(file, durable)
    if fate == "half":
        os.truncate(file, choose.randint(durable, size))
    if fate == "zeros":
        os.truncate(file, size)
