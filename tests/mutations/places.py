"""Changes of a module's syntax tree: what is replaced is found by function and code, not by lines.

A place is ``path::qualified.name`` below `cdc_pipeline`, or the path of a module. What is replaced
there is the one node whose code (`ast.unparse`) is a text, or begins with it if that ends with
``…``; where nodes inside each other match, it is the outermost. ``#2`` behind it is the second such
node. What takes its place is code, in which ``…`` is the old code, or nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

REST: Final = "…"
_MATCHED: Final = (
    ast.stmt,
    ast.expr,
    ast.keyword,
    ast.arg,
    ast.excepthandler,
    ast.comprehension,
    ast.withitem,
)


@dataclass(frozen=True)
class Edit:
    """`old` is the text of the node, `number` which of those that match, `new` what it becomes."""

    old: str
    new: str
    number: int = 0


def mutated(source: str, qualified_name: str, edits: tuple[Edit, ...]) -> str:
    """The code of a module with edits in one of its functions or classes.

    Raises:
        LookupError: a place is not there exactly once.
    """
    tree = ast.parse(source)
    for change in changes(tree, qualified_name, edits):
        change.apply()
    return ast.unparse(tree)


@dataclass(frozen=True)
class Change:
    """New code for the node that is in a parent's field."""

    parent: ast.AST
    field: str
    node: ast.AST
    code: str

    def new(self) -> list[Any]:
        return _parsed(self.code.replace(REST, ast.unparse(self.node).strip()), self.node)

    def apply(self) -> None:
        parent, node, new = self.parent, self.node, self.new()
        value: Any = getattr(parent, self.field)
        if isinstance(parent, ast.Dict) and not new:
            at = value.index(node)
            del parent.keys[at], parent.values[at]
        elif isinstance(value, list):
            at = value.index(node)
            value[at : at + 1] = new
            if self.field == "body" and not value:
                value.append(ast.Pass())
        else:
            (value,) = new
            setattr(parent, self.field, value)


def changes(tree: ast.Module, qualified_name: str, edits: tuple[Edit, ...]) -> list[Change]:
    """What edits would do to a module.

    Raises:
        LookupError: a place is not there exactly once.
    """
    scope = scope_of(tree, qualified_name)
    return [Change(*_place(scope, edit), edit.new) for edit in edits]


def scope_of(tree: ast.Module, qualified_name: str) -> ast.AST:
    """The definition of a name; without one the module.

    Raises:
        LookupError: it is not there exactly once.
    """
    scopes: list[ast.AST] = [tree]
    for name in qualified_name.split(".") if qualified_name else ():
        scopes = [
            node
            for scope in scopes
            for node in _inside(scope)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ]
    if len(scopes) != 1:
        raise LookupError(f"{len(scopes)} definitions of {qualified_name}")
    return scopes[0]


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """What is in a scope and in none of its own definitions."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _inside(node)


def matches(scope: ast.AST, old: str) -> list[tuple[ast.AST, str, ast.AST]]:
    """Nodes with a code: each with its parent and the field that has it there."""
    found: list[tuple[ast.AST, str, ast.AST]] = []
    for name, value in ast.iter_fields(scope):
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST):
                continue
            if not isinstance(node, _MATCHED):
                found += matches(node, old)
                continue
            code = ast.unparse(node).strip()
            if _is(code, old):
                found.append((scope, name, node))
            elif old.removesuffix(REST).partition("\n")[0].strip("()'\"") in code:
                found += matches(node, old)
    return found


def _is(code: str, old: str) -> bool:
    return code.startswith(old.removesuffix(REST)) if old.endswith(REST) else code == old


def _place(scope: ast.AST, edit: Edit) -> tuple[ast.AST, str, ast.AST]:
    found = matches(scope, edit.old)
    if len(found) != 1 and not 0 < edit.number <= len(found):
        raise LookupError(f"{len(found)} times: {edit.old}")
    return found[max(0, edit.number - 1)]


def _parsed(code: str, like: ast.AST) -> list[Any]:
    """Nodes of a code that can stand where another one stood."""
    if not code:
        return []
    if isinstance(like, ast.stmt):
        return ast.parse(code).body
    if isinstance(like, ast.excepthandler):
        return ast.parse(f"try: pass\n{code}").body[0].handlers  # type: ignore[attr-defined]
    if isinstance(like, ast.arg):
        return ast.parse(f"def f({code}): pass").body[0].args.args  # type: ignore[attr-defined]
    if isinstance(like, ast.keyword):
        return ast.parse(f"f({code})", mode="eval").body.keywords  # type: ignore[attr-defined]
    if isinstance(like, ast.comprehension):
        return ast.parse(f"[_ {code}]", mode="eval").body.generators  # type: ignore[attr-defined]
    if isinstance(like, ast.Starred):
        return ast.parse(f"[{code}]", mode="eval").body.elts  # type: ignore[attr-defined]
    if isinstance(like, ast.withitem):
        return ast.parse(f"with {code}: pass").body[0].items  # type: ignore[attr-defined]
    if isinstance(like, ast.Slice):
        return [ast.parse(f"x[{code}]", mode="eval").body.slice]  # type: ignore[attr-defined]
    return [ast.parse(f"({code})", mode="eval").body]
