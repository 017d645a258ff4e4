"""What all generated pages share: their mark, cells of tables, docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence


def made_from(source: str) -> str:
    """Return the mark at the top of a page that is written whole."""
    return f"<!-- made by `make docs` from {source}: change it there -->\n"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell(one) for one in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def paragraphs(documented: object) -> list[str]:
    """Return a docstring's paragraphs as Markdown: double backticks become single ones."""
    text = inspect.getdoc(documented) or ""
    return [as_markdown(" ".join(one.split())) for one in re.split(r"\n\s*\n", text) if one.strip()]


def as_markdown(text: str) -> str:
    """Return prose of the code as Markdown that shows the same."""
    parts = re.sub(r"``([^`]+)``", r"`\1`", text).split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]  # not inside of code
    return "`".join(parts)
