"""Hooks of mkdocs: show the pages that lie at the top (ARCHITECTURE.md, CHANGELOG.md,
CONTRIBUTING.md, SECURITY.md) as pages of the site, and name files that are no pages of it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

TOP = Path(__file__).parents[2]
# A file at the top, and its page.
SHOWN = {
    f"{name}.md": f"inside/{name.lower()}.md"
    for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")
}
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def relinked(text: str, folder: str, page: str) -> str:
    """Return the text of a file in `folder` with links that hold on `page`.

    `folder` is relative to the top and `page` to docs. A link to a file that the site does not have
    becomes its name.
    """

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found["path"]))
        target = SHOWN.get(path) or path.removeprefix("docs/")
        if target == path:
            return found["text"] if path in found["text"] else f"{found['text']} (`{path}`)"
        relative = posixpath.relpath(target, posixpath.dirname(page) or ".")
        return f"[{found['text']}]({relative}{found['anchor'] or ''})"

    return _LINK.sub(link, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for name, page in SHOWN.items():
        text = (TOP / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=relinked(text, ".", page)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    source = page.file.src_uri
    if source in SHOWN.values():
        return markdown
    return relinked(markdown, posixpath.join("docs", posixpath.dirname(source)), source)
