"""Write the table of docs/reference/types.md from the column types:
``python -m tools.types_page``.
"""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.binlog.column_types import TYPES, TypeSpec

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "types.md"
BEGIN = "<!-- made by `make docs` from cdc_pipeline/binlog/column_types.py: change it there -->\n"
END = "<!-- end of the table -->\n"


def _delta(spec: TypeSpec) -> str:
    """Return the Delta types of a source type as people read them."""
    return spec.delta_note or ", ".join(
        f"`{delta}`" for delta in dict.fromkeys(one.delta for one in spec.examples)
    )


def _table() -> str:
    """Return the column types as a table in Markdown."""
    lines = ["| source | Delta | notes |", "|---|---|---|"]
    lines += [f"| {spec.source} | {_delta(spec)} | {spec.note} |" for spec in TYPES.values()]
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """Return the page with the table as it is now between its two marks."""
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n{_table()}\n{END}{after}"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page), encoding="utf-8")
