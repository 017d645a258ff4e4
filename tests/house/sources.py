"""Modules as syntax trees: parsing costs, so that only what can matter is parsed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path


def trees(folder: Path, pattern: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """Those below a folder in whose text the pattern is found."""
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if re.search(pattern, text):
            yield file, ast.parse(text)


def imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Those in functions and branches, too. They are statements: no expression is looked at."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, name, ())
            waiting += below if isinstance(below, list) else ()


def libraries(tree: ast.Module) -> set[str]:
    """First parts of the names of modules that are imported, but for relative ones."""
    found = set()
    for node in imports(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found
