"""Secrets in a text are replaced in one place, the longest first, and once."""

from __future__ import annotations

import ast

from cdc_pipeline.text.hide import NOT_SHOWN, hide
from tests.support.project import ROOT

PACKAGE = ROOT / "cdc_pipeline"


def test_k26_f110_the_longest_secret_comes_first_and_nothing_is_read_twice() -> None:
    named = {"sales": "${DB_USER}", "sales#x9": "${PW}", "PW": "${OTHER}", "": "${EMPTY}"}
    assert hide("'sales#x9' of sales", named) == "'${PW}' of ${DB_USER}"
    assert hide("sales#x9", ["sales", "sales#x9", "*"]) == NOT_SHOWN
    assert hide(f"got {'a' + chr(10) + 'b'!r}", ["a\nb"]) == f"got '{NOT_SHOWN}'"
    assert hide("nothing is hidden", []) == "nothing is hidden"


def test_k26_f110_no_other_place_replaces_secrets() -> None:
    """A loop that replaces one text after another: its order would matter."""
    found = [
        f"{file.relative_to(PACKAGE)}:{loop.lineno}"
        for file in PACKAGE.rglob("*.py")
        for loop in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(loop, ast.For) and _replaces_one_by_one(loop)
    ]
    assert found == []


def _replaces_one_by_one(loop: ast.For) -> bool:
    items = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "replace"
        and len(call.args) == 2
        and any(isinstance(n, ast.Name) and n.id in items for n in ast.walk(call.args[0]))
        for call in ast.walk(loop)
    )
