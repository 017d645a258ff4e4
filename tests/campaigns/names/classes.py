"""Classes of characters, one text for each: what a second language, a terminal or a page may take
for its own.

A class is tried as the name of a table and of a column, as a key, a label of ENUM and SET, a
default and a value.
"""

from __future__ import annotations

import random
import string
from typing import Final

# Of an identifier: no U+0000, no character beyond U+FFFF, 64 characters at most, no blank at its
# end.
_NAME_MAX: Final = 64
_REFUSED_IN_COLUMNS: Final = frozenset(" ,;{}()\n\t=")  # by Delta

_PUNCTUATION: Final = [string.punctuation[at : at + 8] for at in range(0, 32, 8)]

TEXTS: Final[dict[str, str]] = {
    **{f"punctuation {marks[0]} to {marks[-1]}": f"a{'b'.join(marks)}c" for marks in _PUNCTUATION},
    "Spark's environment": "${env:HOME}",
    "Spark's system property": "${system:user.home}",
    "Spark's setting": "${spark.app.name}",
    "quotes of all kinds": "'\"`\u2018\u2019\u201c\u201d\u00b4\u00ab\u00bb",
    "doubled quotes": "''\"\"``",
    "backslashes": "\\' \\n \\\\ \\u0041 \\x41",
    "Rich markup": "[/x]",
    "Rich link": "[link=http://h]a[/link]",
    "Markdown": "**a** _b_ [c](http://h) | <b>",
    "terminal escapes": "\x1b[31mred\x1b]8;;http://h\x07",
    "controls": "a\tb\r\nc\x7f\x85",
    "bidi": "\u202egnp\u2066a\u2069",
    "no width": "a\u200bb\ufeffc\u00ad",
    "lines of Unicode": "a\u2028b\u2029c",
    "combining": "e\u0301a\u0308\u0323",
    "composed": "éạ̈",
    "emoji of the first plane": "☃︎♥️",
    "CJK": "订单",
    "50 x CJK": "订" * 50,  # the most whose file InnoDB can name, at five bytes each
    "64 x Cyrillic": "ж" * _NAME_MAX,
    "German": "größe",
    "Turkish": "İıŞş",
    "Arabic": "طلبات",
    "reserved word": "select",
    "case a": "Case",
    "case b": "CASE",
    "leading blank": " a b",
    "only a blank": " x",
    "dots": "a.b..c...d",
    "one dot": ".x",
    "number": "1e5",
    "true": "true",
    "null": "NULL",
    "percent": "100%25 %s %(a)s {0}",
    "shell": "$(id); `id` && x | y > z",
    "path": "../../etc/passwd",
    "url": "s3a://b/c?d#e",
    "json": '{"a": [1, "b"]}',
    "comment": "/* a */ -- b # c",
}
# What the small sample takes: one for each kind of second language.
SAMPLE: Final = ("Spark's environment", "Rich markup", "50 x CJK")


def identifier(text: str) -> str:
    return text[:_NAME_MAX].rstrip(" ") or "x"


def column(text: str) -> str:
    """The text as a name of a column that Delta takes, too."""
    name = "".join("_" if one in _REFUSED_IN_COLUMNS else one for one in text)
    return f"c{name}"[:_NAME_MAX].rstrip(" ")


def label(text: str) -> str:
    """The text as a label: of a SET without commas, at most 255 characters, and servers trim blanks
    at its end."""
    return text.replace(",", "").rstrip(" ") or "x"


def shuffled(names: list[str], seed: int) -> list[str]:
    found = list(names)
    random.Random(f"names {seed}").shuffle(found)
    return found
