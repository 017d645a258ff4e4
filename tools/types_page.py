"""Write the table of docs/types.md from the conversion table: ``python -m tools.types_page``."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.schema.conversion import CONVERSIONS

PAGE = Path(__file__).parent.parent / "docs" / "types.md"
BEGIN = "<!-- made by `make docs` from cdc_pipeline/schema/conversion.py: change it there -->\n"
END = "<!-- end of the table -->\n"


def _table() -> str:
    """The conversion table in Markdown."""
    lines = ["| source | Delta | notes |", "|---|---|---|"]
    for row in CONVERSIONS:
        shown = ", ".join(text if " " in text else f"`{text}`" for text in row.delta)
        lines.append(f"| {row.source} | {shown} | {row.note} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """The page with the table as it is now between its two marks."""
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n{_table()}\n{END}{after}"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page), encoding="utf-8")
