"""Escaping of source names for Dagster's asset keys, partitions and job names.

Rules:
- Any legal schema or table name has a form in Dagster, different names have different forms, and
  `plain_name` restores the name (K20: a name is text, whatever it contains). Names of letters,
  digits, ``_``, ``-``, ``$`` and ``.`` are written as they are.
- Anything else is written as ``~`` and two hex digits per UTF-8 byte, as in the lake's folders:
  Dagster splits texts at ``/``, ``,`` and ``...``, its pages read ``*``, quotes and brackets as
  operators, and browsers resolve ``..``.
- Inputs and outputs of steps have a hash of the key: Dagster allows only ``[A-Za-z0-9_]`` there,
  and never shows them. A run is planned by definitions that were loaded earlier, and executed by
  those of its process: where a table has come meanwhile, a number would be another table's.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from cdc_pipeline.text.printable import printable

# A leading or repeated dot means something else to browsers ("..") and to Dagster ("...").
_ODD: Final = re.compile(r"[^\w$.-]|(?<![^.])\.")
_ESCAPED: Final = re.compile(r"(?:~[0-9a-f]{2})+")
# Characters that Markdown may interpret; an underscore or dot inside a word is plain text.
_MARKDOWN: Final = re.compile(
    r"([\\`*{}\[\]()<>#!|&~@:]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?i:(?<=www))\.|^\s*[-+=]|"
    r"(?<=\d)[.)](?=\s))"
)


def dagster_name(name: str) -> str:
    return _ODD.sub(lambda match: "".join(f"~{byte:02x}" for byte in match[0].encode()), name)


def plain_name(part: str) -> str:
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[0].replace("~", "")).decode(), part)


def port_name(kind: str, *parts: str) -> str:
    """The name of a step's input or output."""
    return f"{kind}_{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:24]}"


def identifier(name: str) -> str:
    """In ``[A-Za-z0-9_]`` only, for jobs, steps and groups.

    A source's name has that form already. A file name that has not gets a leading ``_``, so that
    the two never collide.
    """
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        return name
    return "_" + re.sub(r"[^A-Za-z0-9]", lambda match: f"_{ord(match[0]):x}_", name)


def markdown(text: str) -> str:
    """Escaped line by line."""
    return "  \n".join(_MARKDOWN.sub(r"\\\1", printable(line)) for line in text.split("\n"))
