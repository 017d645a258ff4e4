"""Nothing cites a text that is not in the repository: the reason stands where it is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "cdc_pipeline", "dagster_home", "docs", "jobs", "tests", "tools")
# Where a page may lie that is cited by its name alone.
PAGES = (
    ROOT / "tests",
    ROOT / "docs",
    *(file for file in (ROOT / "docs").iterdir() if file.is_dir()),
)
TEXTS = {".c", ".md", ".py", ".toml", ".yaml"}
# A page by its name, or a numbered entry of a list that stands elsewhere.
_PAGE = re.compile(r"[\w./-]*\w\.md\b")
_ENTRY = re.compile(r"\b(?:pitfall|promise|issue|ticket)s? #?\d|\b[a-z]+-facts\b", re.IGNORECASE)


def _texts() -> Iterator[Path]:
    yield from (file for file in ROOT.iterdir() if file.suffix in TEXTS or file.name == "Makefile")
    for folder in FOLDERS:
        yield from (file for file in (ROOT / folder).rglob("*") if file.suffix in TEXTS)


def missing_texts(text: str, folder: Path) -> list[str]:
    """What `text`, in a file of `folder`, cites and the repository does not have."""
    pages = [
        page
        for page in _PAGE.findall(text)
        if not any((base / page).is_file() for base in (folder, ROOT, *PAGES))
    ]
    return pages + _ENTRY.findall(text)


def test_no_text_cites_one_that_is_not_here() -> None:
    found = {
        str(file.relative_to(ROOT)): missing
        for file in _texts()
        if file != Path(__file__)
        and (missing := missing_texts(file.read_text(encoding="utf-8"), file.parent))
    }
    assert not found


@pytest.mark.parametrize(
    "text", ["see plans.md", "(pitfall 13)", "as Promise 4 says", "server-facts C", "issue #7"]
)
def test_a_missing_text_is_found(text: str) -> None:
    assert missing_texts(text, ROOT)


@pytest.mark.parametrize(
    "text",
    [
        "docs/reference/types.md",
        "reference/types.md",
        "README.md",
        "a pitfall of two",
        "SPEC P4, K13",
    ],
)
def test_a_text_that_is_here_may_be_cited(text: str) -> None:
    assert missing_texts(text, ROOT) == []
