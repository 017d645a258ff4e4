"""Row filters and computed columns: what may stand in such a Spark SQL expression (K14).

Rules:
- An expression is a function of one row: no subquery, no aggregate, no window, no `*`, no parameter.
- It gives the same for the same row whenever it is evaluated: nothing of the clock, of chance, of the session or of
  where the data lies. A batch that is finished again would otherwise write something else.
- This is a reading of the text, before anything is read: Spark itself judges it again when the table is created
  (`sink/shape.py`), and has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

# Functions of Spark whose value depends on more than their arguments, by their names and by those of the parser.
_NOT_DETERMINISTIC: Final = frozenset(
    {
        "ai_query", "assert_true", "catalog", "current_catalog", "current_database", "current_date", "current_path",
        "current_role", "current_schema", "current_time", "current_timestamp", "current_timezone", "current_user",
        "curdate", "currval", "getdate", "input_file_block_length", "input_file_block_start", "input_file_name",
        "is_account_group_member", "is_member", "java_method", "localtimestamp", "monotonically_increasing_id",
        "nextval", "now", "raise_error", "rand", "randn", "random", "randstr", "reflect", "session_user", "shuffle",
        "spark_partition_id", "sysdate", "try_reflect", "uniform", "user", "utc_date", "utc_time", "utc_timestamp",
        "uuid", "version",
    }
)  # fmt: skip
_WAY: Final = "write a Spark SQL expression over the columns of one row, such as status <> 'draft' or year(ordered_at)"


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that may be used.

    Attributes:
        text: as written.
        reads: names of the columns that it reads, in lower case, sorted.
    """

    text: str
    reads: tuple[str, ...]


@lru_cache(maxsize=1024)
def read_expression(text: str) -> Expression:
    """The expression in `text`.

    Raises:
        ValueError: it cannot be read, is more than one expression over one row, or is not deterministic.
    """
    import sqlglot
    from sqlglot import exp

    try:
        (tree,) = sqlglot.parse(f"SELECT {text}", dialect="spark", error_level=sqlglot.ErrorLevel.RAISE)
    except (sqlglot.errors.SqlglotError, ValueError):
        raise ValueError(f"{text!r} cannot be read as one expression: {_WAY}") from None
    if not isinstance(tree, exp.Select) or any(part for name, part in tree.args.items() if name != "expressions"):
        raise ValueError(f"{text!r} is more than one expression: {_WAY}")
    nodes = tree.expressions
    if len(nodes) != 1 or isinstance(nodes[0], exp.Alias):
        raise ValueError(f"{text!r} is more than one expression: {_WAY}")
    reads = set()
    for node in nodes[0].walk():
        if isinstance(node, exp.Query | exp.Subquery):
            raise ValueError(f"{text!r} holds a subquery: {_WAY}")
        if isinstance(node, exp.Window | exp.AggFunc):
            raise ValueError(f"{text!r} is over more than one row ({node.sql(dialect='spark')}): {_WAY}")
        if isinstance(node, exp.Star | exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise ValueError(f"{text!r} holds {node.sql(dialect='spark')}, which is no column: {_WAY}")
        if isinstance(node, exp.Func) and _names(node) & _NOT_DETERMINISTIC:
            name = min(_names(node) & _NOT_DETERMINISTIC)
            raise ValueError(f"{text!r} is not deterministic ({name}): {_WAY}")
        if isinstance(node, exp.Column):
            reads.add(node.parts[0].name.lower())
    return Expression(text, tuple(sorted(reads)))


def _names(node: object) -> set[str]:
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return {node.name.lower()}
    assert isinstance(node, exp.Func)
    return {name.lower() for name in node.sql_names()}
