"""What servers and libraries say of their errors, without the values that they quote (K26).

Rules:
- Texts of others come into errors, notes and Dagster through here alone. Their types, codes, conditions and names stay;
  whatever stands in quotes goes, from the first quote to the last one, for a value may hold quotes itself.
- An error of a running Spark job may quote values without quotes: of those the condition stays (`[CAST_OVERFLOW]`), of
  Delta's own and of what Spark says of a plan the first line, without numbers.
- An exception of a library is never kept as the cause of ours (`raise ... from None`): Dagster records causes as they
  are.
"""

from __future__ import annotations

import re
from typing import Final

_MAX_CHARS: Final = 400
# Their quotes hold names: of accounts, hosts, databases, tables, columns, variables, functions, plugins and journals.
_NAMING: Final = frozenset(
    {1044, 1045, 1046, 1049, 1054, 1109, 1129, 1130, 1142, 1143, 1146, 1193, 1227, 1236, 1251, 1305, 1356, 1370, 1524}
    | {1698, 1820, 1862, 3118, 3159, 3878, 3879, 3880, 4151}
)
_CLIENT_ERRORS: Final = range(2000, 3000)  # made on this side: hosts, plugins, timeouts
_QUOTE: Final = r"""(?:"|'(?!(?<=n')t\b)(?!(?<=\w')s\b))"""  # not that of "can't" and "server's"
_QUOTED: Final = re.compile(rf"{_QUOTE}.*{_QUOTE}|{_QUOTE}.*$", re.DOTALL)
_NUMBER: Final = re.compile(r"(?<![\w/.-])[-+]?\d[\w.:+-]*")
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)*)\]")
_JAVA_CLASS: Final = re.compile(r"\b(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))\b")
_PLANS: Final = frozenset({"AnalysisException", "ParseException"})


def without_quoted(text: str) -> str:
    """Return a text with `?` for everything from its first quote to its last one."""
    return _QUOTED.sub("?", text)


def said_by_server(number: int | None, text: str) -> str:
    """Return what a MySQL or MariaDB server, or pymysql, says of an error."""
    if number is not None and (number in _NAMING or number in _CLIENT_ERRORS):
        return text
    return without_quoted(text)


def said_by(error: BaseException) -> str:
    """Return type and words of an error of Spark, Delta, Arrow, pydantic or Python, on one line."""
    kind = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        # The folder of a partition holds a value of its rows in its name.
        folder, partition, _ = str(error.filename or "").partition("=")
        place = f"{folder.rpartition('/')[0]}/..." if partition else folder
        return f"{kind}: {error.strerror}" + (f": {place}" if place else "")
    text = str(error)
    causes = [name for name in dict.fromkeys(_JAVA_CLASS.findall(text)) if name != kind][:3]
    conditions = list(dict.fromkeys(_CONDITION.findall(text)))[:3]
    words = [kind, *causes, *(f"[{condition}]" for condition in conditions)]
    if not conditions or kind in _PLANS or conditions[0].startswith("DELTA_"):
        words.append(_first_line(text, behind=f"[{conditions[0]}]" if conditions else ""))
    told = ": ".join(word for word in words if word)
    return told if len(told) <= _MAX_CHARS else told[:_MAX_CHARS] + " ..."


def _first_line(text: str, *, behind: str) -> str:
    """The first line that says something, without values; of py4j's text that of the JVM's error."""
    lines = [line.strip() for line in text.partition(behind)[2].splitlines()] if behind else text.strip().splitlines()
    if lines and lines[0].startswith("An error occurred while calling "):
        lines = [line.strip().lstrip(": ") for line in lines[1:]]
    first = next((line for line in lines if line), "")
    return " ".join(_NUMBER.sub("?", without_quoted(_JAVA_CLASS.sub("", first))).strip(": ").split())
