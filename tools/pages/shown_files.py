"""Files that pages show: the block after ``<!-- file: files/compose.yaml -->`` is that file."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(
    r"^(?P<mark><!-- file: (?P<name>[^ ]+) -->\n```\w+\n).*?^```$", re.MULTILINE | re.DOTALL
)


def with_files(page: Path) -> str:
    """Return a page with the files that it shows as they are now."""

    def shown(block: re.Match[str]) -> str:
        text = (page.parent / block["name"]).read_text(encoding="utf-8")
        return f"{block['mark']}{text.rstrip()}\n```"

    return _BLOCK.sub(shown, page.read_text(encoding="utf-8"))
