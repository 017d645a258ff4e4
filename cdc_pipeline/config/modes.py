"""The modes: how a Delta table follows its source table, and the facts about each.

Rules:
- One row of `MODES` per mode. Code that depends on a mode reads a fact of it and never compares its
  name.
- How Spark writes the rows of a mode is one object per mode in `sink/modes/`;
  docs/inside/extending.md shows how to add a mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Mode = Literal["mirror", "soft_delete", "history", "changelog"]

_SOURCE_NAME: Final = "{schema}.{table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSpec:
    """Facts about one mode.

    Attributes:
        label: its name in texts for people.
        default_name: template of a target's name if its rule gives none.
        proves: what a comparison without differences proves.
        proves_keyless: the same for a target whose table has no key; "" if there is no such target.
        has_key: rows are found by a key; else changes are only added.
        can_find_by_values: without a key rows can be found by all of their values.
        keeps_past: old states of rows that the source deletes or changes remain.
        marks_deleted_rows: a deleted row stays with a mark, one row per key.
        keeps_versions: every version of a row is a row, with the places where it begins and ends.
        rows_are_changes: a row is a change, with the row before it and the name of its transaction.
        reserved_columns: names that a source table must not use, in lower case and besides
            ``_cdc_...``.
    """

    label: str
    default_name: str = _SOURCE_NAME
    proves: str
    proves_keyless: str = ""
    has_key: bool = True
    can_find_by_values: bool = False
    keeps_past: bool = True
    marks_deleted_rows: bool = False
    keeps_versions: bool = False
    rows_are_changes: bool = False
    reserved_columns: tuple[str, ...] = ()

    @property
    def keeps_every_change(self) -> bool:
        """Each change leaves its own record: order matters, and none may come twice."""
        return self.keeps_versions or self.rows_are_changes


MODES: Final[Mapping[Mode, ModeSpec]] = MappingProxyType(
    {
        "mirror": ModeSpec(
            label="mirror",
            proves="every row of the source is in the lake with the same values, and no other row",
            proves_keyless="the same rows, each as many times as in the source",
            can_find_by_values=True,
            keeps_past=False,
        ),
        "soft_delete": ModeSpec(
            label="soft delete",
            proves="every row of the source is a living row of the lake with the same values, and "
            "no other row lives",
            marks_deleted_rows=True,
        ),
        "history": ModeSpec(
            label="history",
            default_name="{schema}.{table}_history",
            proves="the current versions are the rows of the source; versions of a "
            "key do not overlap",
            keeps_versions=True,
            reserved_columns=("__start_at", "__end_at"),
        ),
        "changelog": ModeSpec(
            label="changelog",
            default_name="{schema}.{table}_changelog",
            proves="the last image of each key is the source's row, and a key without a row "
            "ends with a delete; earlier changes are not checked",
            proves_keyless="its changes add up to the rows of the source, each as many times "
            "as in the source",
            has_key=False,
            rows_are_changes=True,
        ),
    }
)


def is_keyless_mirror(mode: Mode, key: tuple[str, ...]) -> bool:
    """Whether a target finds its rows by all of their values, with multiplicity."""
    return MODES[mode].can_find_by_values and not key


def keeps_every_change(mode: Mode, key: tuple[str, ...]) -> bool:
    """Whether a change that is applied twice leaves a mark: no key and seq show that it was
    applied (K7).
    """
    return MODES[mode].keeps_every_change or not key


def key_label(mode: Mode, key: tuple[str, ...]) -> str:
    """What a target's rows are found by, for people."""
    return ", ".join(key) or ("all values" if MODES[mode].has_key else "none")
