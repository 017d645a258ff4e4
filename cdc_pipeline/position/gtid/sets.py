"""Sets of transactions by GTID, of both flavors (SPEC P1).

Rules:
- A set never changes: every operation returns a new one.
- A set adds many transactions at once, by key and number, without a loop over them. The key is the
  part before the number: ``uuid`` or ``uuid:tag`` for MySQL, ``domain-server`` for MariaDB.
- `str` is canonical: equal sets have equal texts, on one line, and the server accepts it.
- Comparing two sets of different flavors is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.errors import PositionError
from cdc_pipeline.position.gtid.errors import set_error
from cdc_pipeline.position.gtid.mariadb import MariadbGtidSet, parse_mariadb
from cdc_pipeline.position.gtid.mysql import MysqlGtidSet, encode_mysql_binary, parse_mysql
from cdc_pipeline.position.position import Flavor

__all__ = [
    "GtidSet",
    "MariadbGtidSet",
    "MysqlGtidSet",
    "SingleGtid",
    "encode_mysql_binary",
    "executed_set",
    "parse_gtid_set",
    "parse_mariadb",
    "parse_mysql",
    "parse_single_gtid",
]


GtidSet = MysqlGtidSet | MariadbGtidSet


@dataclass(frozen=True, slots=True)
class SingleGtid:
    """`key`: ``uuid``, ``uuid:tag`` or ``domain-server``; `text`: the canonical one."""

    flavor: Flavor
    key: str
    number: int
    text: str

    def is_in(self, gtid_set: str) -> bool:
        """A MariaDB position contains all earlier GTIDs of a domain."""
        if self.flavor == "mariadb":
            return parse_mariadb(gtid_set).contains(parse_mariadb(self.text))
        return parse_mysql(gtid_set).contains(parse_mysql(self.text))


def parse_single_gtid(text: str, flavor: Flavor) -> SingleGtid:
    """Raises PositionError: it is not a GTID of this flavor, or more than one."""
    gtid_set = parse_gtid_set(text, flavor)
    if isinstance(gtid_set, MariadbGtidSet):
        if len(gtid_set.last) == 1:
            (((domain, server), number),) = gtid_set.last.items()
            return SingleGtid(flavor, f"{domain}-{server}", number, str(gtid_set))
    elif gtid_set.count() == 1:
        ((key, intervals),) = gtid_set.intervals.items()
        return SingleGtid(flavor, key, int(intervals[0, 0]), str(gtid_set))
    raise set_error(flavor, "not the GTID of one transaction", text, is_single=True)


def parse_gtid_set(text: str, flavor: Flavor) -> GtidSet:
    """An empty text is the empty set. PositionError: no GTID set of this flavor."""
    return parse_mariadb(text) if flavor == "mariadb" else parse_mysql(text)


def executed_set(
    *executed: Mapping[str, NDArray[np.int64]], flavor: Flavor, after: str | GtidSet = ""
) -> GtidSet:
    """With numbers by key, one after the other, behind the set `after`. PositionError: a key does
    not belong to this flavor.
    """
    gtid_set = parse_gtid_set(after, flavor) if isinstance(after, str) else after
    for key, numbers in chain.from_iterable(numbers.items() for numbers in executed):
        gtid_set = gtid_set.add_many(key, numbers)
    return gtid_set


def check_gtid_set(text: str) -> None:
    """Raise PositionError if no flavor reads `text` as a set."""
    try:
        parse_gtid_set(text, "mysql")
    except PositionError as error:
        try:
            parse_gtid_set(text, "mariadb")
        except PositionError:
            raise error from None
