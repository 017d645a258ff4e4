"""Write the generated pages of the documentation: ``python -m tools.pages``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.pages.commands_page import commands_page
from tools.pages.errors_page import errors_page
from tools.pages.metadata_page import metadata_page
from tools.pages.python_page import python_page
from tools.pages.settings_page import settings_page
from tools.pages.types_page import types_page

ROOT = Path(__file__).parents[2]
TYPES = ROOT / "docs" / "reference" / "types.md"
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/commands.md": commands_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/metadata.md": metadata_page,
    "docs/reference/python.md": python_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/types.md": lambda: types_page(TYPES.read_text(encoding="utf-8")),
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
