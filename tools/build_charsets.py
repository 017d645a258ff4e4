"""Builds cdc_pipeline/binlog/charset_data/charsets.npz from tables of what the servers really map.

Usage: python tools/build_charsets.py DIRECTORY

DIRECTORY holds <flavor>_<charset>.json, each a map from the code's bytes in hex to its text, as a
server's own CONVERT(... USING utf8mb4) gives it. A code that a server accepts without knowing its
character maps to "?", and so it does here: that is what SELECT shows. variants.json has, by
charset, the codes that the servers write as another one when they convert their character back. The
npz holds, per charset, arrays of uint16 named <charset>.one, .two, .three, and .variants of uint32;
a flavor whose table differs gets its own, named <flavor>_<charset>.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

NOT_A_CODE = 0xFFFF
LEAD_BYTE = 0xFFFE
OUT = Path(__file__).parent.parent / "cdc_pipeline" / "binlog" / "charset_data" / "charsets.npz"


def tables(codes: dict[str, str]) -> dict[str, np.ndarray]:
    one = np.full(256, NOT_A_CODE, np.uint16)
    two = np.full(65536, NOT_A_CODE, np.uint16)
    three = np.full(65536, NOT_A_CODE, np.uint16)
    leads = {int(code[:2], 16) for code in codes if len(code) > 2}
    for code, text in codes.items():
        value = int(code, 16)
        if len(code) == 2:
            # A lone lead byte is the beginning of a code, whatever a server makes of it at the end
            # of a value.
            if value not in leads and text:
                one[value] = ord(text)
        elif len(code) == 4:
            two[value] = ord(text)
        else:
            if code[:2] != "8f":
                raise SystemExit(f"a code of three bytes that does not begin with 8f: {code}")
            three[value & 0xFFFF] = ord(text)
    one[sorted(leads)] = LEAD_BYTE
    parts = {"one": one}
    if any(len(code) == 4 for code in codes):
        parts["two"] = two
    if any(len(code) == 6 for code in codes):
        parts["three"] = three
    return parts


def gb18030_four_bytes() -> np.ndarray:
    """Codes of four bytes below U+10000, by their linear number: the standard's, as Python's codec
    has them.

    The server differs in two codes (found by CONVERT over all 39420): 8135F437 is U+E7C7, as in the
    standard of 2000, and the last one, which Python leaves out, is U+FFFF. Here every number has a
    character.
    """
    linear = np.full(39420, 0xFFFF, np.uint16)
    for number in range(len(linear) - 1):
        rest, fourth = divmod(number, 10)
        rest, third = divmod(rest, 126)
        first, second = divmod(rest, 10)
        linear[number] = ord(
            bytes((0x81 + first, 0x30 + second, 0x81 + third, 0x30 + fourth)).decode("gb18030")
        )
    linear[7457] = 0xE7C7
    return linear


def main(directory: Path) -> None:
    arrays: dict[str, np.ndarray] = {}
    variants = json.loads((directory / "variants.json").read_text())
    for path in sorted(directory.glob("mysql_*.json")):
        charset = path.stem.removeprefix("mysql_")
        parts = tables(json.loads(path.read_text()))
        if charset == "gb18030":
            parts["three"] = gb18030_four_bytes()
        arrays |= {f"{charset}.{name}": array for name, array in parts.items()}
        other = directory / f"mariadb_{charset}.json"
        if other.exists():
            theirs = tables(json.loads(other.read_text()))
            if any(not np.array_equal(parts[name], theirs[name]) for name in parts):
                print(f"{charset}: MariaDB differs")
                arrays |= {f"mariadb_{charset}.{name}": array for name, array in theirs.items()}
    for charset, codes in variants.items():
        arrays[f"{charset}.variants"] = np.array([int(code, 16) for code in codes], np.uint32)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(OUT, **arrays)  # type: ignore[arg-type]  # a table may have any name
    print(f"{OUT.name}: {len(arrays)} tables, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
