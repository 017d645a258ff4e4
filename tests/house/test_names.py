"""Names of schemas and tables are compared in one place (K30)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import trees

PRODUCT = Path(__file__).resolve().parents[2] / "cdc_pipeline"

# What reads names out of a text, an event or a setting, and the argument that says how the server
# compares them.
_READERS = {
    "parse_statement": "modes",
    "parse_logged": "names",
    "SqlModes.from_bits": "names",
    "SqlModes": "names",
    "StatementRules": "names",
    "RunDecoder": "names",
    "TableMaps": "names",
    "ArchiveSource": "names",
    "ArchiveSourceConfig": "lower_case_table_names",
    "ShadowNames": "1",
    "TablePattern.parse": "1",
}
# Calls without it, and why they need none.
_NEED_NONE = {
    ("config/target_config.py", "TablePattern.parse"),  # checked, not compared
    ("operations/rehearse/script.py", "SqlModes.from_bits"),  # settings of a session
    ("schema/catalog.py", "SqlModes"),  # of a column's type
    ("schema/ddl/tokens.py", "SqlModes"),  # nothing is known
    ("schema/evolution/statement_context.py", "ShadowNames"),  # before a pipeline's own
    ("source/archive/archive_then_live.py", "ArchiveSource"),  # the server beside it says it
}


def _calls(pattern: str) -> Iterator[tuple[str, str, ast.Call]]:
    for file, tree in trees(PRODUCT, pattern):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield file.relative_to(PRODUCT).as_posix(), ast.unparse(node.func), node


def test_k30_whatever_reads_names_is_told_how_they_are_compared() -> None:
    left: dict[tuple[str, str], int] = {}
    for file, name, call in _calls("|".join(_READERS)):
        wanted = _READERS.get(name)
        given = {keyword.arg for keyword in call.keywords} | {str(len(call.args) - 1)}
        if wanted and wanted not in given:
            left[file, name] = call.lineno
    assert left.keys() == _NEED_NONE, left


def test_k29_statements_of_the_log_are_read_in_the_modes_of_their_sessions() -> None:
    found = {file for file, name, _ in _calls("parse_statement") if name == "parse_statement"}
    kept = "schema/evolution/table_changes.py"  # a shadow's statements, with their modes
    assert found == {"schema/ddl/ddl.py", kept}


def test_k30_nothing_else_folds_letters_that_only_a_server_folds() -> None:
    """`str.casefold` is no server's way: it stands where labels are compared, and nowhere else."""
    found = {file for file, name, _ in _calls("casefold") if name.endswith(".casefold")}
    assert found == {"schema/evolution/backfill.py"}
