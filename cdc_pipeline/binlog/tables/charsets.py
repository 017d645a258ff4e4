"""Decode text in the servers' charsets: the tables and the reading mode of each charset.

The tables are the servers' real mappings (tools/build_charsets.py), which differ from Python's
codecs: latin1 0x81 is U+0081, euckr is the Unified Hangul Code, and a code that a server accepts
without knowing its character is "?", as in SELECT. UTF-8 is validated and passed through.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.numbers import VALID
from cdc_pipeline.binlog.kernels.text import text
from cdc_pipeline.errors import SchemaError, UnrepresentableValueError

_NO_TABLE: Final = np.full(1, text.NOT_A_CODE, np.uint16)
_QUESTION_MARK: Final = 0x3F

# Charsets that need no table.
_MODES: Final = {
    "utf8mb4": text.UTF8_4,
    "utf8mb3": text.UTF8_3,
    "utf8": text.UTF8_3,
    "ucs2": text.UCS2,
    "utf16": text.UTF16,
    "utf16le": text.UTF16LE,
    "utf32": text.UTF32,
    "binary": text.BYTES,
}


@dataclass(frozen=True, slots=True)
class Charset:
    """Tables and reading mode of a charset.

    Attributes:
        name: the server's name for it.
        mode: a mode of `kernels.text`.
        one, two, three: uint16 tables of code points; with one element if the charset has no such
            codes.
    """

    name: str
    mode: int
    one: NDArray[np.uint16]
    two: NDArray[np.uint16]
    three: NDArray[np.uint16]

    @property
    def copied_as(self) -> int | None:
        """The mode in which valid bytes are copied unchanged; None if they must be transcoded. Text
        without a charset is accepted only if it is ASCII."""
        if self.mode == text.BYTES:
            return text.ASCII
        return self.mode if self.mode in (text.ASCII, text.UTF8_3, text.UTF8_4) else None


@cache
def _stored() -> dict[str, NDArray[np.uint16]]:
    source = resources.files("cdc_pipeline.binlog") / "charset_data" / "charsets.npz"
    with resources.as_file(source) as path, np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@cache
def find_charset(name: str, *, is_mariadb: bool = False, is_key: bool = False) -> Charset:
    """The charset with this name on the server. The flavor matters for ascii and eucjpms only. In a
    key each character has one code, the one that the server writes, and an unknown one has none:
    two keys would have one text. ASCII's characters keep all of theirs, each of which is in use.
    Raises SchemaError: the charset is unknown.
    """
    mode = _MODES.get(name)
    if mode is not None:
        return Charset(name, mode, _NO_TABLE, _NO_TABLE, _NO_TABLE)
    if name == "ascii" and not is_mariadb:
        return Charset(name, text.ASCII, _NO_TABLE, _NO_TABLE, _NO_TABLE)
    stored = _stored()
    key = f"mariadb_{name}" if is_mariadb and f"mariadb_{name}.one" in stored else name
    if f"{key}.one" not in stored:
        raise SchemaError(
            f"the charset {name!r} is unknown",
            expected=", ".join(known_charsets()),
            got=name,
            next_step="convert the column to a known charset, or exclude its table "
            "from the capture",
        )
    tables = [stored.get(f"{key}.{part}", _NO_TABLE) for part in ("one", "two", "three")]
    if is_key:
        variants = stored.get(f"{name}.variants")
        tables = _one_code_of_each(tables, [] if variants is None else variants.tolist())
    return Charset(name, text.GB18030 if name == "gb18030" else text.TABLE, *tables)


def _one_code_of_each(
    tables: list[NDArray[np.uint16]], variants: list[int]
) -> list[NDArray[np.uint16]]:
    told = [table.copy() for table in tables]
    for code in variants:
        part = told[(code > 0xFF) + (code > 0xFFFF)]
        if part[code & 0xFFFF] > 0x7F:
            part[code & 0xFFFF] = text.NOT_A_CODE
    for part in told:
        part[part == _QUESTION_MARK] = text.NOT_A_CODE
    told[0][_QUESTION_MARK] = _QUESTION_MARK
    return told


def holds_text(value: str, charset: str, *, is_mariadb: bool = False) -> bool:
    """Whether a charset has every character of a text: servers write question marks for others.
    Raises SchemaError: the charset is unknown.
    """
    found = find_charset(charset, is_mariadb=is_mariadb)
    points = np.array([ord(character) for character in value], np.uint32)
    if found.mode in (text.UTF8_3, text.UCS2):
        return bool((points <= 0xFFFF).all())
    if found.mode == text.ASCII:
        return value.isascii()
    if found.mode == text.TABLE:
        return bool(np.isin(points, np.concatenate((found.one, found.two, found.three))).all())
    return True


def known_charsets() -> list[str]:
    stored = {name.split(".")[0] for name in _stored()}
    return sorted({name for name in stored if not name.startswith("mariadb_")} | set(_MODES))


def decode_label(raw: bytes, charset: str, *, is_mariadb: bool = False) -> str:
    """Decode a label of ENUM or SET. Those of a binary column were typed by a client: nearly always
    in UTF-8.

    Raises UnrepresentableValueError, SchemaError: as `decode_text`.
    """
    return decode_text(raw, "utf8mb4" if charset == "binary" else charset, is_mariadb=is_mariadb)


def decode_text(raw: bytes, charset: str, *, is_mariadb: bool = False) -> str:
    """Decode one value, for labels and other small texts; columns use the kernels. Raises
    UnrepresentableValueError: the bytes are not text in the charset; SchemaError: the charset is
    unknown.
    """
    found = find_charset(charset, is_mariadb=is_mariadb)
    try:
        if found.mode in (text.UTF8_4, text.UTF8_3, text.ASCII, text.BYTES):
            decoded = raw.decode("ascii" if found.mode in (text.ASCII, text.BYTES) else "utf-8")
            if found.mode == text.UTF8_3 and any(ord(character) > 0xFFFF for character in decoded):
                raise ValueError("a character above U+FFFF")
            return decoded
        data = np.frombuffer(len(raw).to_bytes(4, "little") + raw, np.uint8)
        out = np.empty(3 * len(raw) + 4, np.uint8)
        offsets, state = np.zeros(2, np.int32), np.zeros(1, np.uint8)
        start, at = np.zeros(1, np.int64), np.zeros(1, np.int32)
        end = text.transcode(
            data,
            start,
            at,
            4,
            found.mode,
            found.one,
            found.two,
            found.three,
            out,
            0,
            offsets,
            state,
        )
        if state[0] != VALID:
            raise ValueError("a code that the charset does not have")
        return out[:end].tobytes().decode("utf-8")
    except ValueError:
        raise UnrepresentableValueError(
            f"bytes are not valid {charset}",
            expected=f"text in {charset}",
            got=f"{len(raw)} bytes that are not",
            next_step="fix the value at the source, or convert the column's charset",
        ) from None
