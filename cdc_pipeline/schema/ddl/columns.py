"""Column definitions of CREATE TABLE and ALTER TABLE ... ADD COLUMN.

Rules:
- A definition counts only if it was read to its end: with an unknown attribute it is `Uncertain`,
  since that may change values (K13: only what is certain is applied).
- A default is kept as written; `cdc_pipeline.schema.evolution.backfill` determines the value of old
  rows.

Source: MySQL 9.7 manual, 15.1.24 (CREATE TABLE, column_definition); MariaDB 10.11, CREATE TABLE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.schema.ddl.options import take_charset, take_option
from cdc_pipeline.schema.ddl.tokens import Token, TokenKind, TokenReader, certain, respelled
from cdc_pipeline.schema.ddl.types import in_charset, read_type, take_compressed

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
        sql_type: the type as it is written, with sign and charset; `?` for the labels of ENUM and
            SET.
        declared: the type's name in upper case.
        column: kind, sign, sizes, charset and labels, for `schema.types.delta_type`.
        is_char: CHAR(n), whose values have no trailing blanks.
        sizes: numbers behind the name of a real, a TEXT or a BLOB.
        nullable: None if neither NULL nor NOT NULL is written.
        expression: of a generated column, as it is written.
        stored: of a generated column: its values are stored, not computed by the reader.
        period: "START" or "END" of system versioning's period.
        constrained: CHECK or REFERENCES is written.
        versioned: WITH SYSTEM VERSIONING is written, which gives it to the table.
        comment: "" if none is written, which leaves the column without one.
        after: column that it is placed after; "" if `first` or nothing is written.
    """

    name: str
    sql_type: str
    declared: str
    column: Column
    is_char: bool = False
    sizes: tuple[int, ...] = ()
    nullable: bool | None = None
    default: DefaultKind = DefaultKind.NONE
    literal: Literal | None = None
    generated: bool = False
    expression: str = field(default="", repr=False)
    stored: bool = False
    period: str = ""
    versioned: bool = False
    auto_increment: bool = False
    primary_key: bool = False
    unique: bool = False
    constrained: bool = False
    visible: bool = True
    comment: str = field(default="", repr=False)
    first: bool = False
    after: str = ""

    @property
    def not_null(self) -> bool:
        """Including keys and SERIAL."""
        return (
            self.nullable is False
            or self.primary_key
            or self.auto_increment
            or self.declared == "SERIAL"
        )

    def in_charset(self, charset: str, *, is_mariadb: bool) -> ColumnDefinition:
        """With the charset that holds where it names none; "" if that is unknown."""
        column = in_charset(self.column, charset, is_char=self.is_char, is_mariadb=is_mariadb)
        return self if column == self.column else replace(self, column=column)


def column_definition(tokens: TokenReader) -> ColumnDefinition:
    """Pass over ``name type attributes [FIRST | AFTER column]``. The reader is then at a comma, a
    closing parenthesis or the end (or at what ALTER TABLE allows after its list). Raises Uncertain.
    """
    name = certain(tokens.column())
    start = tokens.index
    declared = read_type(tokens)
    sql_type = "".join(respelled(tokens.sql, tokens.read[start : tokens.index], _without_label))
    definition = ColumnDefinition(
        name, sql_type, declared.declared, declared.column, declared.is_char, declared.sizes
    )
    if declared.declared == "SERIAL":
        definition = replace(definition, auto_increment=True, unique=True)
    while not (tokens.at_end() or tokens.at_any(",", ")", "PARTITION", "REMOVE")):
        read = _ATTRIBUTES.get(tokens.peek().key, _engines_own)
        definition = read(tokens, definition)
    column = replace(
        definition.column,
        name=name,
        nullable=not definition.not_null,
        visible=definition.visible,
    )
    return replace(definition, column=column)


_Read = Callable[[TokenReader, ColumnDefinition], ColumnDefinition]


def _sets(*forms: str, **fields: object) -> _Read:
    """A reader of one of these forms, the longest first, which sets fields."""

    def read(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
        certain(any(tokens.take(*form.split()) for form in forms))
        return replace(definition, **fields)  # type: ignore[arg-type]

    return read


def _skips(skip: Callable[[TokenReader], object], **fields: object) -> _Read:
    """A reader of an attribute that `skip` passes over, from its first word on, and whose text
    does not matter; false or None if it cannot be read.
    """

    def read(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
        certain(skip(tokens))
        return replace(definition, **fields)  # type: ignore[arg-type]

    return read


def _generated(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
    certain(tokens.take("GENERATED", "ALWAYS", "AS") or tokens.take("AS"))
    if tokens.take("ROW"):
        period = certain(tokens.take_any("START", "END") or None)
        return replace(definition, generated=True, stored=True, period=period, nullable=False)
    start = tokens.peek().start
    certain(tokens.skip_group())
    return replace(definition, generated=True, expression=tokens.sql[start : tokens.peek().start])


def _after(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
    tokens.next()
    return replace(definition, after=certain(tokens.column()))


def _collate(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
    named = certain(take_charset(tokens))
    return definition.in_charset(named.name, is_mariadb=tokens.is_mariadb)


def _comment(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
    return replace(definition, comment=certain(take_option(tokens)).value)


def _engines_own(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
    certain(tokens.peek(1).key == "=" and take_option(tokens))
    return definition


def _not(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
    if tokens.take("NOT", "NULL"):
        return replace(definition, nullable=False)
    certain(tokens.take("NOT", "ENFORCED") or tokens.take("NOT", "SECONDARY"))
    return definition


def _skip_on_update(tokens: TokenReader) -> bool:
    return tokens.take("ON", "UPDATE") and _now(tokens)


def _skip_constraint(tokens: TokenReader) -> bool:
    tokens.next()
    if not tokens.at_any("CHECK", "REFERENCES"):
        tokens.name()
    return tokens.at_any("CHECK", "REFERENCES")


def _skip_check(tokens: TokenReader) -> bool:
    tokens.next()
    return tokens.skip_group()


def _skip_number(tokens: TokenReader) -> bool:
    tokens.next()
    tokens.take("=")
    return tokens.next().kind is TokenKind.NUMBER


def _skip_word(tokens: TokenReader) -> bool:
    tokens.next()
    return tokens.name() is not None


def skip_references(tokens: TokenReader) -> bool:
    """``REFERENCES table (columns) [MATCH ..] [ON DELETE ..] [ON UPDATE ..]``"""
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


def _now(tokens: TokenReader) -> bool:
    """CURRENT_TIMESTAMP[(n)], NOW() and their like."""
    if tokens.peek().key not in _NOW:
        return False
    tokens.next()
    tokens.skip_group()
    return True


def _default(tokens: TokenReader, definition: ColumnDefinition) -> ColumnDefinition:
    tokens.next()
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
    _skip_expression(tokens)
    return replace(definition, default=DefaultKind.EXPRESSION)


def _ends_default(tokens: TokenReader) -> bool:
    """Whether a new attribute or the end follows, so that the whole default was read."""
    return tokens.at_end() or tokens.peek().key in _FOLLOWING


def _skip_expression(tokens: TokenReader) -> None:
    """Up to what may follow a default; MariaDB needs no parentheses around an expression."""
    is_case = tokens.at("CASE")
    while not (tokens.at_end() or tokens.at_any(",", ")")):
        if tokens.at("("):
            certain(tokens.skip_group())
        else:
            token = tokens.next()
            certain(token.kind is not TokenKind.BAD)
            is_case = is_case and token.key != "END"
        if not is_case and _ends_default(tokens):
            return


def _read_literal(tokens: TokenReader) -> Literal | None:
    """None if there is no constant here."""
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
    if text is None:
        return None
    if not text and tokens.modes.empty_string_is_null:
        return Literal(LiteralKind.NULL)
    return Literal(LiteralKind.STRING, text)


def _without_label(token: Token) -> str | None:
    return "?" if token.kind in (TokenKind.STRING, TokenKind.QUOTED) else None


# By the first word of an attribute.
_ATTRIBUTES: Final[dict[str, _Read]] = {
    "NOT": _not,
    "NULL": _sets("NULL", nullable=True),
    "DEFAULT": _default,
    "SERIAL": _sets("SERIAL DEFAULT VALUE", nullable=False, auto_increment=True, unique=True),
    "AUTO_INCREMENT": _sets("AUTO_INCREMENT", auto_increment=True),
    "PRIMARY": _sets("PRIMARY KEY", "PRIMARY", primary_key=True),
    "KEY": _sets("KEY", primary_key=True),
    "UNIQUE": _sets("UNIQUE KEY", "UNIQUE", unique=True),
    "ON": _skips(_skip_on_update),
    "GENERATED": _generated,
    "AS": _generated,
    "VIRTUAL": _sets("VIRTUAL", stored=False),
    "STORED": _sets("STORED", stored=True),
    "PERSISTENT": _sets("PERSISTENT", stored=True),
    "VISIBLE": _sets("VISIBLE", visible=True),
    "INVISIBLE": _sets("INVISIBLE", visible=False),
    "COLLATE": _collate,
    "FIRST": _sets("FIRST", first=True),
    "AFTER": _after,
    "CONSTRAINT": _skips(_skip_constraint),
    "CHECK": _skips(_skip_check, constrained=True),
    "ENFORCED": _sets("ENFORCED"),
    "REFERENCES": _skips(skip_references, constrained=True),
    "SRID": _skips(_skip_number),
    "REF_SYSTEM_ID": _skips(_skip_number),
    "COLUMN_FORMAT": _skips(_skip_word),
    "STORAGE": _skips(_skip_word),
    "COMMENT": _comment,
    "ENGINE_ATTRIBUTE": _skips(take_option),
    "SECONDARY_ENGINE_ATTRIBUTE": _skips(take_option),
    "COMPRESSED": _skips(take_compressed),
    "WITHOUT": _sets("WITHOUT SYSTEM VERSIONING"),
    "WITH": _sets("WITH SYSTEM VERSIONING", versioned=True),
}
_FOLLOWING: Final = frozenset(_ATTRIBUTES) | {",", ")", "PARTITION", "REMOVE"}
