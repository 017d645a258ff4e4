"""Render literals of the source for Spark SQL (K20: none may become SQL).

Rules:
- Delta's parser binds no parameters (`session.sql(text, args=...)`), so a statement contains its
  values as literals that `text_literal` renders. Each character that another parser could interpret
  is written as its code: Spark's variable substitution finds no ``${``, a template finds no brace,
  and a search for names in backticks finds none inside a literal.
- The form depends on `spark.sql.parser.escapedStringLiterals`. The pipeline owns this setting, like
  all others that change the meaning of a literal (`cdc_pipeline.config.spark_config`).
"""

from __future__ import annotations

import re
from typing import Final

_MEANINGFUL: Final = frozenset("\\'\"`${}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9 _.,:;/+=@#-]")  # replaced one by one
_CODE: Final = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


def text_literal(text: str) -> str:
    return "'" + _NOT_PLAIN.sub(_code, text) + "'"


def text_of_literal(literal: str) -> str:
    return _CODE.sub(lambda code: chr(int(code[1] or code[2], 16)), literal[1:-1])


def _code(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable() and character not in _MEANINGFUL:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
