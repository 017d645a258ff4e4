"""Names and texts of the source inside Spark SQL: one quoting function, one renderer of literals (K20).

Rules:
- Delta's parser binds no parameters (`session.sql(text, args=...)`), so values that a statement needs stand in its
  text, as `text_literal` writes them: each character that a second reader could give a meaning is written as its code.
  Spark's variable substitution finds no ``${``, a template finds no brace, and a search for names in backticks finds
  none inside a literal.
- The one setting that the form depends on, `spark.sql.parser.escapedStringLiterals`, belongs to the pipeline like all
  others that change what a text means (`cdc_pipeline.config.spark_config`).
"""

from __future__ import annotations

import re
from typing import Final

_MEANINGFUL: Final = frozenset("\\'\"`${}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9 _.,:;/+=@#-]")  # looked at one by one


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Return a text as a Spark SQL string literal."""
    return "'" + _NOT_PLAIN.sub(_code, text) + "'"


def _code(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable() and character not in _MEANINGFUL:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
