"""Every link between pages leads somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(
        page for name in ("docs", "tests", "benchmarks") for page in (ROOT / name).rglob("*.md")
    ),
]
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _links(page: Path) -> list[tuple[Path, str]]:
    """Files and anchors that a page leads to."""
    found = _LINK.findall(page.read_text(encoding="utf-8"))
    return [
        ((page.parent / path).resolve() if path else page, anchor)
        for path, anchor in found
        if ":" not in path
    ]


def _anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().strip()).replace(" ", "-") for heading in headings
    }


def test_links_lead_to_files_and_headings_that_are_there() -> None:
    broken = [
        f"{page.name}: {target.name}#{anchor}"
        for page in PAGES
        for target, anchor in _links(page)
        if not target.exists() or (anchor and anchor not in _anchors(target))
    ]
    assert not broken
