"""What the generator may do: one place for everything that the product does not follow yet, or
follows by stopping.

`APPLIED` names the kinds of DDL after which the target goes on; `MAY_STOP` those that may suspend
their table by the product's own rules (K13: values were rewritten without row events, a reload is
asked for). A kind in neither is not generated. `FEATURES` names what else may occur.
"""

from __future__ import annotations

from typing import Final

APPLIED: Final = frozenset(
    {
        "add_column",
        "add_columns",
        "add_index",
        "drop_index",
        "comment",
        "default",
        "uncaptured",
        "drop_column",
        "rename_column",
        "drop_add",
        "swap_columns",
        "widen",
        "move_column",
        "truncate",
        "drop_create",
        "drop_table",
        "drop_database",
        "rename_table",
        "gh_ost",
        "pt_osc",
        "create_select",
    }
)
MAY_STOP: Final = frozenset({"modify", "convert_charset", "change_key", "partition"})
FEATURES: Final = frozenset({"modes", "keyless"})

# What a pack's tables are kept as.
MODES: Final = (
    ("mirror",),
    ("mirror",),
    ("mirror",),
    ("mirror", "soft_delete"),
    ("mirror", "history"),
    ("mirror", "changelog"),
    ("soft_delete", "history"),
    ("mirror", "soft_delete", "history", "changelog"),
)

KINDS: Final = APPLIED | MAY_STOP
