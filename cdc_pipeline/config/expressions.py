"""Row filters and computed columns: what such a Spark SQL expression may contain (K14, K27).

Rules:
- An expression is a function of one row: no subquery, no aggregate, no window, no `*`, no
  parameter.
- It always yields the same value for the same row: it may not depend on clock, chance, session or
  data location. Otherwise a repeated batch would write something else.
- Anything not known to be deterministic is refused: a function must be one of `_FUNCTIONS`.
- Spark reads the constants 'now', 'today', 'tomorrow' and 'yesterday' as a time wherever it casts a
  constant to a date or timestamp, visibly or not. No constant may be one of these words, nor come
  from a function of constants. In a column's values the same words are plain text.
- This module checks only the text. Spark checks the expression again when the table is created
  (`sink/modes/shape.py`), and decides.
"""

# ruff: noqa: SIM905 - lists of words are read more easily without quotes

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlglot import Token, exp

# Spark's one-row functions whose value depends only on their arguments and on settings that the
# pipeline controls.
_FUNCTIONS: Final = frozenset(
    """
        abs acos acosh add_months aes_decrypt aggregate array array_append array_compact
        array_contains array_distinct array_except array_insert array_intersect array_join array_max
        array_min array_position array_prepend array_remove array_repeat array_size array_sort
        array_union arrays_overlap arrays_zip ascii asin asinh atan atan2 atanh base64 bigint bin
        binary bit_count bit_get bit_length boolean bround btrim cardinality cast cbrt ceil ceiling
        char char_length character_length chr coalesce collate collation concat concat_ws contains
        conv convert_timezone cos cosh cot crc32 csc date date_add date_diff date_format
        date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname
        dayofmonth dayofweek dayofyear decimal decode degrees double e element_at elt encode
        endswith equal_null exists exp expm1 extract factorial filter find_in_set flatten float
        floor forall format_number format_string from_csv from_json from_unixtime from_utc_timestamp
        get get_json_object getbit greatest hash hex hour hypot if ifnull initcap instr int
        is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull json_array_length
        json_object_keys last_day lcase least left len length levenshtein ln locate log log10 log1p
        log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
        make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map
        map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
        map_values map_zip_with mask md5 minute mod month monthname months_between named_struct
        nanvl negative next_day nullif nullifzero nvl nvl2 octet_length overlay parse_json parse_url
        pi pmod position positive pow power printf quarter quote radians reduce regexp_count
        regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr
        repeat replace reverse right rint round rpad rtrim second sentences sequence sha sha1 sha2
        shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice smallint sort_array
        soundex space split split_part sqrt startswith str_to_map string struct substr substring
        substring_index tan tanh time_diff time_trunc timestamp timestamp_micros timestamp_millis
        timestamp_seconds timestampadd timestampdiff tinyint to_binary to_char to_csv to_date
        to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
        to_utc_timestamp to_varchar to_variant_object transform transform_keys transform_values
        translate trim trunc try_add try_aes_decrypt try_cast try_divide try_element_at
        try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod
        try_multiply try_parse_json try_parse_url try_subtract try_to_binary try_to_date
        try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_get
        typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp
        upper url_decode url_encode validate_utf8 variant_get weekday weekofyear width_bucket
        xxhash64 year zeroifnull zip_with
    """.split()
)
# Other words allowed before a parenthesis: operators, and types with a size.
_OPERATORS: Final = frozenset(
    """
        all and any as between both by case char character dec decimal div else end escape from in
        ilike interval is leading like not numeric or regexp rlike some then trailing varchar when
    """.split()
)
# Given only constants, these return no text.
_OF_CONSTANTS: Final = frozenset(
    """
        array date_add date_sub date e make_date make_dt_interval make_interval make_time
        make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval map named_struct pi
        struct ts_or_ds_add ts_or_ds_to_date var_map
    """.split()
)
# Functions that Spark calls without parentheses.
_BARE: Final = frozenset(
    """
        current_catalog current_database current_date current_path current_role current_schema
        current_time current_timestamp current_user localtime localtimestamp session_user user
    """.split()
)
_TIME_WORD: Final = re.compile(r"\s*(now|today|tomorrow|yesterday)\s*", re.IGNORECASE)
# the only codes in a text that the parser below leaves as they are
_CODED: Final = re.compile(r"\\[0-3][0-7]{2}")
_WAY: Final = (
    "write a Spark SQL expression over the columns of one row, such as status <> 'draft' or "
    "year(ordered_at)"
)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that passed the checks; `reads`: the columns, in lower case, sorted."""

    text: str
    reads: tuple[str, ...]


@lru_cache(maxsize=1024)
def read_expression(text: str) -> Expression:
    """Raises ValueError: the text cannot be parsed, is not a single expression over one row, or
    is not known to be deterministic.
    """
    import sqlglot
    from sqlglot import exp

    try:
        (tree,) = sqlglot.parse(
            f"SELECT {text}", dialect="spark", error_level=sqlglot.ErrorLevel.RAISE
        )
    except (sqlglot.errors.SqlglotError, ValueError):
        raise ValueError(f"{text!r} cannot be parsed as one expression: {_WAY}") from None
    if not isinstance(tree, exp.Select) or any(
        part for name, part in tree.args.items() if name != "expressions"
    ):
        raise ValueError(f"{text!r} is more than one expression: {_WAY}")
    nodes = tree.expressions
    if len(nodes) != 1 or isinstance(nodes[0], exp.Alias):
        raise ValueError(f"{text!r} is more than one expression: {_WAY}")
    reads = set()
    for node in nodes[0].walk():
        if isinstance(node, exp.Query | exp.Subquery):
            raise ValueError(f"{text!r} contains a subquery: {_WAY}")
        if isinstance(node, exp.Window | exp.AggFunc):
            raise ValueError(
                f"{text!r} reads more than one row ({node.sql(dialect='spark')}): {_WAY}"
            )
        if isinstance(node, exp.Star | exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise ValueError(
                f"{text!r} contains {node.sql(dialect='spark')}, which is not a column: {_WAY}"
            )
        if isinstance(node, exp.Literal | exp.RawString) and _TIME_WORD.fullmatch(str(node.this)):
            raise ValueError(
                f"{text!r} is not deterministic: Spark reads {str(node.this)!r} as a time: {_WAY}"
            )
        if isinstance(node, exp.Func) and _names(node) & _BARE:
            raise ValueError(f"{text!r} is not deterministic ({min(_names(node) & _BARE)}): {_WAY}")
        if isinstance(node, exp.Column):
            reads.add(node.parts[0].name.lower())
    _check_calls(text)
    for node in nodes[0].walk():
        if isinstance(node, exp.Func | exp.DPipe) and not _may_be_constant(node):
            raise ValueError(
                f"{text!r} makes a constant with a function, which Spark may read as the time "
                f"of evaluation ({node.sql(dialect='spark')}): write the constant itself"
            )
    return Expression(text, tuple(sorted(reads)))


def _check_calls(text: str) -> None:
    """Check each name before a parenthesis as written, because the parser renames functions."""
    import sqlglot
    from sqlglot import TokenType

    tokens = sqlglot.tokenize(text, dialect="spark")
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.STRING and _CODED.search(
            text[token.start : token.end + 1]
        ):
            raise ValueError(
                f"{text!r} contains characters written as codes: write the characters themselves"
            )
        before = tokens[at - 1] if at else None
        if token.token_type is not TokenType.L_PAREN or before is None or not _may_be_name(before):
            continue
        name = before.text.lower()
        is_qualified = at > 1 and tokens[at - 2].token_type is TokenType.DOT
        if is_qualified or (name not in _FUNCTIONS and name not in _OPERATORS):
            raise ValueError(f"{text!r} is not known to be deterministic ({name}): {_WAY}")


def _may_be_name(token: Token) -> bool:
    from sqlglot import TokenType

    if token.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER):
        return False
    return token.token_type is TokenType.IDENTIFIER or token.text[:1].isidentifier()


def _may_be_constant(node: exp.Func | exp.DPipe) -> bool:
    """Whether a function reads the row, or makes no text from its constants."""
    from sqlglot import exp

    if isinstance(node, exp.Connector) or isinstance(node.parent, exp.Case):
        return True  # a truth value; or a branch, whose CASE is checked
    if any(isinstance(part, exp.Column | exp.Identifier) for part in node.walk()):
        return True
    if isinstance(node, exp.Cast):
        return isinstance(node.this, exp.Literal | exp.Neg | exp.Boolean | exp.Null | exp.HexString)
    return isinstance(node, exp.Func) and bool(_names(node) & _OF_CONSTANTS)


def _names(node: exp.Func) -> set[str]:
    """The names of a function: as written, and the parser's own."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return {node.name.lower()}
    return {name.lower() for name in node.sql_names()}
