"""Errors for malformed GTID sets, with the right form for each flavor."""

from __future__ import annotations

from typing import Final, TypeVar

from cdc_pipeline.errors import PositionError
from cdc_pipeline.position.position import Flavor

_GOT_CHARACTERS_MAX: Final = 200
_SET_FORMS: Final[dict[Flavor, str]] = {
    "mysql": (
        "a GTID set of MySQL such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7, with tags "
        "uuid:1-5:tag:1-3"
    ),
    "mariadb": "a GTID position of MariaDB such as 0-1-100,1-1-7",
}
_SINGLE_FORMS: Final[dict[Flavor, str]] = {
    "mysql": (
        "one GTID of MySQL such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:7, with a tag uuid:tag:7"
    ),
    "mariadb": "one GTID of MariaDB such as 0-1-100",
}
_SETS: Final[dict[Flavor, str]] = {
    "mysql": "SELECT @@global.gtid_executed",
    "mariadb": "SELECT @@global.gtid_binlog_pos",
}

SetT = TypeVar("SetT")


def set_error(flavor: Flavor, what: str, got: str, *, is_single: bool = False) -> PositionError:
    where = "SHOW BINLOG EVENTS or `cdc-pipeline binlog JOURNAL`" if is_single else _SETS[flavor]
    return PositionError(
        what,
        expected=(_SINGLE_FORMS if is_single else _SET_FORMS)[flavor],
        got=got if len(got) <= _GOT_CHARACTERS_MAX else got[:_GOT_CHARACTERS_MAX] + " ...",
        next_step=f"take it from {where}",
    )


def same_kind(kind: type[SetT], other: object, flavor: Flavor) -> SetT:
    """PositionError: `other` is a set of the other flavor: they are never compared."""
    if not isinstance(other, kind):
        name = "MariaDB" if flavor == "mariadb" else "MySQL"
        raise set_error(
            flavor,
            f"a GTID set of {name} cannot be compared with one of another kind of server",
            str(other),
        )
    return other
