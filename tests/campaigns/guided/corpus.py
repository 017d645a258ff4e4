"""The inputs that are kept: one file a target, one input a line, in hexadecimal digits."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("corpus")
INPUTS_MAX: Final = 100
INPUT_BYTES_MAX: Final = 500


def inputs(name: str) -> list[bytes]:
    file = FOLDER / f"{name}.hex"
    lines = file.read_text(encoding="ascii").split("\n") if file.exists() else []
    return [bytes.fromhex(line) for line in lines if line]


def keep(name: str, found: list[bytes]) -> None:
    short = sorted({one for one in found if one and len(one) <= INPUT_BYTES_MAX}, key=_order)
    FOLDER.mkdir(exist_ok=True)
    lines = [one.hex() + "\n" for one in short[:INPUTS_MAX]]
    (FOLDER / f"{name}.hex").write_text("".join(lines), encoding="ascii")


def _order(one: bytes) -> tuple[int, bytes]:
    return len(one), one
