"""Error messages of servers and libraries, without the row values that they quote (K26).

Rules:
- Messages of others reach errors, notes and Dagster only through this module. Their types, codes,
  conditions and names stay. Everything from the first quote to the last is removed, because a value
  may contain quotes itself.
- An error of a running Spark job may contain values without quotes, so only its condition stays
  (`[CAST_OVERFLOW]`). Of Delta's errors and of Spark's errors about a plan, the first line stays,
  without numbers.
- An exception of a library is never the cause of one of ours (`raise ... from None`), because
  Dagster records causes unchanged.
"""

from __future__ import annotations

import re
from typing import Final

_MAX_CHARS: Final = 400
# These quote names: accounts, hosts, databases, tables, columns, variables, functions, plugins and
# journals.
_NAMING: Final = (
    "1044 1045 1046 1049 1054 1109 1129 1130 1142 1143 1146 1193 1227 1236 1251 1305 1356 1370 "
    "1524 1698 1820 1862 3118 3159 3878 3879 3880 4151"
)
_NAMING_NUMBERS: Final = frozenset(map(int, _NAMING.split()))
_CLIENT_ERRORS: Final = range(2000, 3000)  # raised by the client: hosts, plugins, timeouts
# But not the apostrophe of "can't" and "server's".
_QUOTE: Final = r"""(?:"|'(?!(?<=n')t\b)(?!(?<=\w')s\b))"""
_QUOTED: Final = re.compile(rf"{_QUOTE}.*{_QUOTE}|{_QUOTE}.*$", re.DOTALL)
_NUMBER: Final = re.compile(r"(?<![\w/.-])[-+]?\d[\w.:+-]*")
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)*)\]")
_JAVA_CLASS: Final = re.compile(r"\b(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))\b")
_PLANS: Final = frozenset({"AnalysisException", "ParseException"})


def without_quoted(text: str) -> str:
    """Replace everything from the first quote of `text` to the last by `?`."""
    return _QUOTED.sub("?", text)


def said_by_server(number: int | None, text: str) -> str:
    """The message of an error of a MySQL or MariaDB server, or of pymysql."""
    if number is not None and (number in _NAMING_NUMBERS or number in _CLIENT_ERRORS):
        return text
    return without_quoted(text)


def said_by(error: BaseException) -> str:
    """Type and message of an error of Spark, Delta, Arrow, pydantic or Python, on one line."""
    kind = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        # The name of a partition's folder contains a value of its rows.
        folder, partition, _ = str(error.filename or "").partition("=")
        place = f"{folder.rpartition('/')[0]}/..." if partition else folder
        return f"{kind}: {error.strerror}" + (f": {place}" if place else "")
    text = str(error)
    causes = [name for name in dict.fromkeys(_JAVA_CLASS.findall(text)) if name != kind][:3]
    conditions = list(dict.fromkeys(_CONDITION.findall(text)))[:3]
    words = [kind, *causes, *(f"[{condition}]" for condition in conditions)]
    if not conditions or kind in _PLANS or conditions[0].startswith("DELTA_"):
        words.append(_first_line(text, behind=f"[{conditions[0]}]" if conditions else ""))
    message = ": ".join(word for word in words if word)
    return message if len(message) <= _MAX_CHARS else message[:_MAX_CHARS] + " ..."


def _first_line(text: str, *, behind: str) -> str:
    """The first line with text, without values; for py4j the first line of the JVM's error."""
    lines = (
        [line.strip() for line in text.partition(behind)[2].splitlines()]
        if behind
        else text.strip().splitlines()
    )
    if lines and lines[0].startswith("An error occurred while calling "):
        lines = [line.strip().lstrip(": ") for line in lines[1:]]
    first = next((line for line in lines if line), "")
    return " ".join(
        _NUMBER.sub("?", without_quoted(_JAVA_CLASS.sub("", first))).strip(": ").split()
    )
