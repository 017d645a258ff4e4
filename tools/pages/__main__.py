"""Write the generated pages of the documentation: ``python -m tools.pages``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cdc_pipeline.binlog.column_types import TYPES, TypeSpec
from tools.pages.commands_page import commands_page
from tools.pages.errors_page import errors_page
from tools.pages.metadata_page import metadata_page
from tools.pages.python_page import python_page
from tools.pages.settings_page import settings_page

BEGIN = "<!-- made by `make docs` from cdc_pipeline/binlog/column_types.py: change it there -->\n"
END = "<!-- end of the table -->\n"


def types_page(page: str) -> str:
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n{_table()}\n{END}{after}"


def _table() -> str:
    lines = ["| source | Delta | notes |", "|---|---|---|"]
    lines += [f"| {spec.source} | {_delta(spec)} | {spec.note} |" for spec in TYPES.values()]
    return "\n".join(lines) + "\n"


def _delta(spec: TypeSpec) -> str:
    return spec.delta_note or ", ".join(
        f"`{delta}`" for delta in dict.fromkeys(one.delta for one in spec.examples)
    )


ROOT = Path(__file__).parents[2]
TYPES_PAGE = ROOT / "docs" / "reference" / "types.md"
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/commands.md": commands_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/metadata.md": metadata_page,
    "docs/reference/python.md": python_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/types.md": lambda: types_page(TYPES_PAGE.read_text(encoding="utf-8")),
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
