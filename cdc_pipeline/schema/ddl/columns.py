"""Column definitions of CREATE TABLE and ALTER TABLE ... ADD COLUMN.

Rules:
- A definition counts only if it was read to its end: an unknown attribute makes it None, since it
  may change values (K13: only what is certain is applied).
- A default is kept as written; `cdc_pipeline.schema.evolution.backfill` determines the value of old
  rows.

Source: MySQL 9.7 manual, 15.1.24 (CREATE TABLE, column_definition); MariaDB 10.11, CREATE TABLE.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.schema.ddl.tokens import Token, TokenKind, TokenReader, respelled
from cdc_pipeline.schema.ddl.types import (
    bytes_of_text,
    charset_of_collation,
    read_type,
    take_compressed,
)

_NOW: Final = frozenset({"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"})


class LiteralKind(Enum):
    NULL = "null"
    STRING = "string"
    NUMBER = "number"  # text with its sign
    HEX = "hex"  # digits
    BITS = "bits"  # digits
    BOOLEAN = "boolean"  # TRUE or FALSE


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as it is written."""

    kind: LiteralKind
    text: str = ""


class DefaultKind(Enum):
    NONE = "none"
    CONSTANT = "constant"
    NOW = "current time"
    EXPRESSION = "expression"


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column as a statement defines it.

    Attributes:
        name: column name.
        sql_type: the type as it is written, with sign and charset; `?` for the labels of ENUM and
            SET.
        declared: the type's name in upper case.
        column: kind, sign, sizes, charset and labels, for `schema.types.delta_type`.
        is_char: CHAR(n), whose values have no trailing blanks.
        nullable: None if neither NULL nor NOT NULL is written.
        default: DEFAULT's kind; `literal` is its constant.
        expression: of a generated column, as it is written.
        stored: of a generated column: its values are stored, not computed by the reader.
        after: column that it is placed after; "" if `first` or nothing is written.
    """

    name: str
    sql_type: str
    declared: str
    column: Column
    is_char: bool = False
    nullable: bool | None = None
    default: DefaultKind = DefaultKind.NONE
    literal: Literal | None = None
    on_update: bool = False
    generated: bool = False
    expression: str = field(default="", repr=False)
    stored: bool = False
    auto_increment: bool = False
    primary_key: bool = False
    unique: bool = False
    visible: bool = True
    first: bool = False
    after: str = ""

    @property
    def not_null(self) -> bool:
        """Return whether the column cannot be NULL (including keys and SERIAL)."""
        return (
            self.nullable is False
            or self.primary_key
            or self.auto_increment
            or self.declared == "SERIAL"
        )


def column_definition(tokens: TokenReader, *, table_charset: str = "") -> ColumnDefinition | None:
    """Pass over ``name type attributes [FIRST | AFTER column]``; None if it cannot be read with
    certainty.

    The reader is then at a comma, a closing parenthesis or the end (or at what ALTER TABLE allows
    after its list).
    """
    name = tokens.name()
    if name is None:
        return None
    start = tokens.index
    declared = read_type(tokens)
    if declared is None:
        return None
    sql_type = "".join(respelled(tokens.sql, tokens.read[start : tokens.index], _without_label))
    definition = ColumnDefinition(
        name, sql_type, declared.declared, declared.column, is_char=declared.is_char
    )
    if declared.declared == "SERIAL":
        definition = replace(definition, auto_increment=True, unique=True)
    read = _attributes(tokens, definition)
    if read is None:
        return None
    column = read.column
    if table_charset and not column.charset and column.type.has_charset:
        column = bytes_of_text(replace(column, charset=table_charset), is_char=read.is_char)
    return replace(
        read, column=replace(column, name=name, nullable=not read.not_null, visible=read.visible)
    )


def _attributes(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition | None:
    while not (tokens.at_end() or tokens.at_any(",", ")", "PARTITION", "REMOVE")):
        step = _attribute(tokens, definition)
        if step is None:
            return None
        definition = step
    return definition


def _attribute(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition | None:
    """Pass over one attribute; None if it is unknown."""
    if tokens.take("NOT", "NULL"):
        return replace(definition, nullable=False)
    if tokens.take("NULL"):
        return replace(definition, nullable=True)
    if tokens.take("DEFAULT"):
        return _default(tokens, definition)
    if tokens.take("SERIAL", "DEFAULT", "VALUE"):
        return replace(definition, nullable=False, auto_increment=True, unique=True)
    if tokens.take("AUTO_INCREMENT"):
        return replace(definition, auto_increment=True)
    if tokens.take("PRIMARY", "KEY") or tokens.take("PRIMARY") or tokens.take("KEY"):
        return replace(definition, primary_key=True)
    if tokens.take("UNIQUE"):
        tokens.take("KEY")
        return replace(definition, unique=True)
    if tokens.take("ON", "UPDATE"):
        return replace(definition, on_update=True) if _now(tokens) else None
    if tokens.take("GENERATED", "ALWAYS", "AS") or tokens.take("AS"):
        if tokens.take("ROW", "START") or tokens.take("ROW", "END"):
            return replace(definition, generated=True, stored=True)
        start = tokens.peek().start
        if tokens.skip_group():
            return replace(
                definition, generated=True, expression=tokens.sql[start : tokens.peek().start]
            )
        return None
    if definition.generated and (word := tokens.take_any("VIRTUAL", "STORED", "PERSISTENT")):
        return replace(definition, stored=word != "VIRTUAL")
    if word := tokens.take_any("VISIBLE", "INVISIBLE"):
        return replace(definition, visible=word == "VISIBLE")
    if tokens.take("COLLATE"):
        return _collate(tokens, definition)
    if tokens.take("FIRST"):
        return replace(definition, first=True)
    if tokens.take("AFTER"):
        after = tokens.name()
        return None if after is None else replace(definition, after=after)
    return definition if _harmless(tokens) else None


def _harmless(tokens: TokenReader) -> bool:
    """Pass over an attribute that changes no value: comments, checks, references, storage hints."""
    if tokens.take("COMMENT"):
        return tokens.string() is not None
    if tokens.at("CONSTRAINT"):
        tokens.next()
        if not tokens.at_any("CHECK", "REFERENCES"):
            tokens.name()
        return tokens.at_any("CHECK", "REFERENCES")
    if tokens.take("CHECK"):
        return tokens.skip_group()
    if tokens.take("NOT", "ENFORCED") or tokens.take("ENFORCED"):
        return True
    if tokens.take("NOT", "SECONDARY"):
        return True
    if tokens.at("REFERENCES"):
        return skip_references(tokens)
    if tokens.take("SRID"):
        return tokens.next().kind is TokenKind.NUMBER
    if tokens.take_any("COLUMN_FORMAT", "STORAGE"):
        return tokens.name() is not None
    if tokens.at_any("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        tokens.next()
        tokens.take("=")
        return tokens.string() is not None
    if tokens.take("REF_SYSTEM_ID", "="):
        return tokens.next().kind is TokenKind.NUMBER
    if take_compressed(tokens):
        return True
    return tokens.take("WITHOUT", "SYSTEM", "VERSIONING") or tokens.take(
        "WITH", "SYSTEM", "VERSIONING"
    )


def skip_references(tokens: TokenReader) -> bool:
    """Pass over ``REFERENCES table (columns) [MATCH ..] [ON DELETE ..] [ON UPDATE ..]``."""
    if not tokens.take("REFERENCES") or tokens.table("") is None:
        return False
    tokens.skip_group()
    if tokens.take("MATCH"):
        tokens.next()
    while tokens.take("ON", "DELETE") or tokens.take("ON", "UPDATE"):
        if not (
            tokens.take("SET", "NULL")
            or tokens.take("SET", "DEFAULT")
            or tokens.take("NO", "ACTION")
        ):
            tokens.next()
    return True


def _collate(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition | None:
    collation = tokens.name_or_string()
    if collation is None:
        return None
    if definition.column.charset:
        return definition
    column = replace(definition.column, charset=charset_of_collation(collation))
    return replace(definition, column=bytes_of_text(column, is_char=definition.is_char))


def _now(tokens: TokenReader) -> bool:
    """Pass over CURRENT_TIMESTAMP[(n)], NOW() and their like."""
    if tokens.peek().key not in _NOW:
        return False
    tokens.next()
    tokens.skip_group()
    return True


def _default(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition | None:
    here = tokens.index
    literal = _read_literal(tokens)
    if literal is None and tokens.at("("):
        # (constant) is a constant, too.
        tokens.next()
        literal = _read_literal(tokens)
        if literal is not None and not tokens.take(")"):
            literal = None
    if literal is not None and _ends_default(tokens):
        return replace(definition, default=DefaultKind.CONSTANT, literal=literal)
    tokens.index = here
    if _now(tokens) and _ends_default(tokens):
        return replace(definition, default=DefaultKind.NOW)
    tokens.index = here
    return replace(definition, default=DefaultKind.EXPRESSION) if _skip_expression(tokens) else None


_AFTER_DEFAULT: Final = frozenset(
    {
        ",",
        ")",
        "NOT",
        "NULL",
        "AUTO_INCREMENT",
        "PRIMARY",
        "KEY",
        "UNIQUE",
        "COMMENT",
        "COLLATE",
        "COLUMN_FORMAT",
        "STORAGE",
        "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "REFERENCES",
        "CONSTRAINT",
        "CHECK",
        "ON",
        "VISIBLE",
        "INVISIBLE",
        "SRID",
        "FIRST",
        "AFTER",
        "PARTITION",
        "REMOVE",
        "WITHOUT",
        "WITH",
        "SERIAL",
    }
)


def _ends_default(tokens: TokenReader) -> bool:
    """Return whether a new attribute or the end follows, so that the whole default was read."""
    return tokens.at_end() or tokens.peek().key in _AFTER_DEFAULT


def _skip_expression(tokens: TokenReader) -> bool:
    """Pass over an expression (MariaDB needs no parentheses around one) up to what may follow a
    default."""
    if tokens.at("(") and tokens.skip_group() and _ends_default(tokens):
        return True
    while not (tokens.at_end() or tokens.at_any(",", ")")):
        if tokens.at("("):
            if not tokens.skip_group():
                return False
        elif tokens.next().kind is TokenKind.BAD:
            return False
        if tokens.peek().key in _AFTER_DEFAULT and not tokens.at("NOT") and not tokens.at("NULL"):
            return True
    return True


def _read_literal(tokens: TokenReader) -> Literal | None:
    """Pass over a constant; None if there is none here."""
    token = tokens.peek()
    if token.key in ("NULL", "TRUE", "FALSE"):
        tokens.next()
        return (
            Literal(LiteralKind.NULL)
            if token.key == "NULL"
            else Literal(LiteralKind.BOOLEAN, token.key)
        )
    if token.key in ("-", "+") and tokens.peek(1).kind is TokenKind.NUMBER:
        tokens.next()
        sign = "-" if token.key == "-" else ""
        return Literal(LiteralKind.NUMBER, sign + tokens.next().text)
    if token.kind is TokenKind.NUMBER:
        tokens.next()
        return Literal(LiteralKind.NUMBER, token.text)
    # An introducer or a type's name in front: _latin1'..', _binary x'..', DATE '2024-01-01'.
    quoted_next = tokens.peek(1).kind in (TokenKind.STRING, TokenKind.QUOTED)
    if token.key in ("DATE", "TIME", "TIMESTAMP") and quoted_next:
        tokens.next()
    if token.key.startswith("_") and tokens.peek(1).kind in (TokenKind.HEX, TokenKind.BITS):
        if token.key != "_BINARY":  # bytes in a charset: text that is not decoded here
            return None
        tokens.next()
    token = tokens.peek()
    if token.kind is TokenKind.HEX:
        tokens.next()
        return Literal(LiteralKind.HEX, token.text)
    if token.kind is TokenKind.BITS:
        tokens.next()
        return Literal(LiteralKind.BITS, token.text)
    text = tokens.string()
    return None if text is None else Literal(LiteralKind.STRING, text)


def _without_label(token: Token) -> str | None:
    return "?" if token.kind in (TokenKind.STRING, TokenKind.QUOTED) else None
