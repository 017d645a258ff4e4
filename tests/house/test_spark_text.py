"""K20 by the source itself: sessions and literals of Spark SQL are made in one place."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.house.sources import trees

PACKAGE = Path(__file__).resolve().parents[2] / "cdc_pipeline"
RENDERERS = {
    "sink/spark/sql.py",
    "text/spark_sql.py",
    "schema/evolution/backfill.py",
}  # the last one: digits, dates and hex
NO_SQL = {"sink/spark/class_archive.py", "sink/durable/retention.py"}


def _quoted_holes(tree: ast.AST) -> list[int]:
    """Lines of f-strings with a placeholder right between two quotes: a literal that nothing has
    escaped."""
    found = []
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for before, hole, after in zip(parts, parts[1:], parts[2:], strict=False):
            texts = [part.value for part in (before, after) if isinstance(part, ast.Constant)]
            is_within = (
                len(texts) == 2 and str(texts[0]).endswith("'") and str(texts[1]).startswith("'")
            )
            if is_within and isinstance(hole, ast.FormattedValue) and hole.conversion == -1:
                found.append(node.lineno)
    return found


def test_k20_no_literal_is_made_beside_the_renderer() -> None:
    """K20: ``'{value}'`` in a text is a literal that means whatever the value says; `text_literal`
    makes them."""
    assert _quoted_holes(ast.parse("f\"SELECT '{a}', {b}\"")) == [1]
    found = {
        str(file.relative_to(PACKAGE)): lines
        for folder in ("sink", "schema")
        for file, tree in trees(PACKAGE / folder, r"'(\"\s*f\")?\{")
        if (lines := _quoted_holes(tree))
    }
    assert found.keys() <= RENDERERS | NO_SQL, found


def test_k20_sessions_are_made_in_one_place() -> None:
    """K20: a session that something else makes has not the settings that every text relies on."""
    users = {
        str(file.relative_to(PACKAGE))
        for file, tree in trees(PACKAGE, "newSession|getOrCreate")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("newSession", "getOrCreate")
    }
    assert users == {"sink/spark/session.py"}
