"""How names of the source are written where Dagster has rules of its own: parts of asset keys, partitions, job names.

Rules:
- Any legal name of a schema or table has a form in Dagster, different names have different forms, and `plain_name`
  gives the name back (K20). Names of letters, digits, ``_``, ``-``, ``$`` and ``.`` are written as they are.
- Anything else is written as ``~`` and two hex digits per UTF-8 byte, as in the lake's folders: Dagster splits texts at
  ``/``, ``,`` and ``...``, its pages take ``*``, quotes and brackets for operators, and a browser resolves ``..``.
- Inputs and outputs of steps are numbered instead: Dagster allows them ``[A-Za-z0-9_]`` alone, and never shows them.
"""

from __future__ import annotations

import re
from typing import Final

from cdc_pipeline.text.printable import printable

# A dot at the begin or behind another one is no part of a name to browsers ("..") and Dagster ("...").
_ODD: Final = re.compile(r"[^\w$.-]|(?<![^.])\.")
_ESCAPED: Final = re.compile(r"(?:~[0-9a-f]{2})+")
# What Markdown may obey: an underscore within a word and a dot within a name are plain text.
_MARKDOWN: Final = re.compile(
    r"([\\`*{}\[\]()<>#!|&~@:]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?i:(?<=www))\.|^\s*[-+=]|(?<=\d)[.)](?=\s))"
)


def dagster_name(name: str) -> str:
    """Return `name` as one part of an asset key, or as a partition's key."""
    return _ODD.sub(lambda match: "".join(f"~{byte:02x}" for byte in match[0].encode()), name)


def plain_name(part: str) -> str:
    """Return the name that `dagster_name` wrote as `part`."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[0].replace("~", "")).decode(), part)


def identifier(name: str) -> str:
    """Return `name` as a text of ``[A-Za-z0-9_]`` alone, for jobs, steps and groups.

    The name of a source is one already. That of a file that is none begins with ``_``, so that the two never meet.
    """
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        return name
    return "_" + re.sub(r"[^A-Za-z0-9]", lambda match: f"_{ord(match[0]):x}_", name)


def markdown(text: str) -> str:
    """Return `text` as Markdown that shows it as it is, line by line."""
    return "  \n".join(_MARKDOWN.sub(r"\\\1", printable(line)) for line in text.split("\n"))
