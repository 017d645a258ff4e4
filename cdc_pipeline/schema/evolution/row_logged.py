"""Whether row events record all row changes of a statement: no row is added, removed or given
another key without one (K12: only then may rows be appended without MERGE).

Rules:
- Only certainty counts: a statement of an unknown shape is treated as one that changes rows in
  silence.
- A foreign key may delete or change rows of the child without row events (cascades): a statement
  that names one counts, in the text as a whole, so that no comment or version mark hides it.
- Rows of a table of another engine than InnoDB can go with a restart or a repair.
"""

from __future__ import annotations

import re
from typing import Final

from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.evolution.statement_context import Decision

_K = StatementKind
_NEUTRAL: Final = frozenset({_K.CREATE_INDEX, _K.DROP_INDEX, _K.MAINTENANCE, _K.SEQUENCE})
_NEVER: Final = re.compile(
    r"\b(FOREIGN|REFERENCES|CASCADE|PARTITION\w*|SUBPARTITION\w*|TABLESPACE|REPAIR|UNION)\b"
    r"|\b(ENGINE|TYPE)\s*=?\s*(?!\s|=|[\"'`]?InnoDB\b)",
    re.IGNORECASE,
)
_REWRITES: Final = re.compile(
    r"\b(DROP|MODIFY|CHANGE|CONVERT|RENAME|EXCHANGE|IMPORT|DISCARD|TRUNCATE|REORGANIZE|COALESCE|"
    r"REMOVE|AUTO_INCREMENT|IGNORE|PERIOD|VERSIONING)\b",
    re.IGNORECASE,
)


def is_row_logged(decision: Decision, sql: str) -> bool:
    """Whether row events record every row change; `sql` is the statement's whole text."""
    kind = decision.statement.kind
    if decision.ignored:
        return True
    if _NEVER.search(sql):
        return False
    if kind in _NEUTRAL or decision.creates:
        return True
    return kind is _K.ALTER_TABLE and not _REWRITES.search(sql)
