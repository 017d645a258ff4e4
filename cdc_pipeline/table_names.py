"""The text of a table's name. Identity is the pair of schema and table; the text stands for exactly one pair.

Rules:
- The text is ``schema.table``. The first dot ends the schema, so a dot in the table's own name needs no quotes.
- A schema with a dot in it, or with a backtick at its begin, is written in backticks: ```a.b`.c``. Without the quotes
  table ``c`` of schema ``a.b`` and table ``b.c`` of schema ``a`` would be one name (K20).
"""

from __future__ import annotations


def table_name(schema: str, table: str) -> str:
    """Return the text of a pair; `split_table_name` is its inverse."""
    if "." in schema or schema.startswith("`"):
        schema = f"`{schema.replace('`', '``')}`"
    return f"{schema}.{table}"


def split_table_name(name: str) -> tuple[str, str]:
    """Return schema and table of a name; a text without a dot is a schema, and the table is empty."""
    if name.startswith("`"):
        at = 1
        while (end := name.find("`", at)) >= 0 and name[end + 1 : end + 2] == "`":
            at = end + 2
        if end > 0 and name[end + 1 : end + 2] == ".":
            return name[1:end].replace("``", "`"), name[end + 2 :]
    schema, _, table = name.partition(".")
    return schema, table
