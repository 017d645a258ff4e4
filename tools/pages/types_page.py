"""The table of docs/reference/types.md, from the column types."""

from __future__ import annotations

from cdc_pipeline.binlog.column_types import TYPES, TypeSpec

BEGIN = "<!-- made by `make docs` from cdc_pipeline/binlog/column_types.py: change it there -->\n"
END = "<!-- end of the table -->\n"


def types_page(page: str) -> str:
    """Return the page with the table as it is now between its two marks."""
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n{_table()}\n{END}{after}"


def _table() -> str:
    """Return the column types as a table in Markdown."""
    lines = ["| source | Delta | notes |", "|---|---|---|"]
    lines += [f"| {spec.source} | {_delta(spec)} | {spec.note} |" for spec in TYPES.values()]
    return "\n".join(lines) + "\n"


def _delta(spec: TypeSpec) -> str:
    """Return the Delta types of a source type as people read them."""
    return spec.delta_note or ", ".join(
        f"`{delta}`" for delta in dict.fromkeys(one.delta for one in spec.examples)
    )
