"""MySQL's GTID sets: ``uuid:1-3:5``, and with tags (8.3 and later) ``uuid:1-3:tag:1-5:8``.

Rules:
- A key is a uuid in lower case, or uuid and tag. Its transactions are sorted, disjoint,
  non-adjacent intervals, an int64 array (k, 2) of first and one past the last.
- The text is that of the server without line breaks: keys sorted, a uuid's tags after its untagged
  intervals.

Source: MySQL manual, "GTID Sets"; COM_BINLOG_DUMP_GTID in "Replication Protocol"; Gtid_set::encode
for the binary form.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.position.gtid.errors import same_kind, set_error

NUMBER_MAX: Final = 2**63 - 2
_TAGGED_FORMAT: Final = 1

Intervals = NDArray[np.int64]  # (k, 2): first, one past the last

_UUID = re.compile(
    r"\{?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?"
)
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?")


@dataclass(frozen=True, slots=True)
class MysqlGtidSet:
    """`intervals`: non-empty arrays by key (``uuid`` or ``uuid:tag``)."""

    intervals: Mapping[str, Intervals] = field(default_factory=dict)

    def contains(self, other: object) -> bool:
        return not same_kind(MysqlGtidSet, other, "mysql").subtract(self)

    def union(self, other: object) -> MysqlGtidSet:
        merged = dict(self.intervals)
        for key, added in same_kind(MysqlGtidSet, other, "mysql").intervals.items():
            merged[key] = _merge(np.concatenate([merged[key], added])) if key in merged else added
        return MysqlGtidSet(merged)

    def subtract(self, other: object) -> MysqlGtidSet:
        left: dict[str, Intervals] = {}
        theirs = same_kind(MysqlGtidSet, other, "mysql").intervals
        for key, own in self.intervals.items():
            taken = theirs.get(key)
            rest = own if taken is None else _difference(own, taken)
            if len(rest):
                left[key] = rest
        return MysqlGtidSet(left)

    def add_many(self, key: str, numbers: NDArray[np.int64]) -> MysqlGtidSet:
        """In any order. PositionError: no uuid with or without a tag, or a number is out
        of range.
        """
        if not len(numbers):
            return self
        if int(numbers.min()) < 1 or int(numbers.max()) > NUMBER_MAX:
            raise set_error(
                "mysql",
                "a transaction number is out of range",
                f"{key}:{int(numbers.min())}-{int(numbers.max())}",
            )
        source, _, tag = key.partition(":")
        normal = _uuid(source, key)
        if tag:
            if not _TAG.fullmatch(tag.lower()):
                raise set_error("mysql", "a tag is malformed", key)
            normal = f"{normal}:{tag.lower()}"
        return self.union(MysqlGtidSet({normal: _merge(np.stack([numbers, numbers + 1], axis=1))}))

    def count(self) -> int:
        return sum(int((own[:, 1] - own[:, 0]).sum()) for own in self.intervals.values())

    @property
    def is_tagged(self) -> bool:
        return any(":" in key for key in self.intervals)

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MysqlGtidSet) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        parts: dict[str, list[str]] = {}
        for key in sorted(self.intervals, key=_sort_key):
            source, _, tag = key.partition(":")
            texts = [
                f"{a}-{b - 1}" if b - a > 1 else str(a) for a, b in self.intervals[key].tolist()
            ]
            parts.setdefault(source, []).extend([tag, *texts] if tag else texts)
        return ",".join(":".join([source, *texts]) for source, texts in parts.items())


def parse_mysql(text: str) -> MysqlGtidSet:
    """Intervals may overlap, "" is the empty set. PositionError: no GTID set."""
    found: dict[str, list[tuple[int, int]]] = {}
    for part in re.sub(r"\s+", "", text).lower().split(","):
        if not part:
            continue
        source, *tokens = part.split(":")
        source = key = _uuid(source, text)
        pending_tag = False
        for token in tokens:
            interval = _INTERVAL.fullmatch(token)
            if interval is not None:
                first = int(interval[1])
                last = int(interval[2] or interval[1])
                if not 1 <= first <= last <= NUMBER_MAX:
                    raise set_error(
                        "mysql", f"{token} is not an interval of transaction numbers", text
                    )
                found.setdefault(key, []).append((first, last + 1))
                pending_tag = False
            elif _TAG.fullmatch(token) and not pending_tag:
                key = f"{source}:{token}"
                pending_tag = True
            else:
                raise set_error("mysql", f"{token!r} is neither an interval nor a tag", text)
        if pending_tag or not tokens:
            raise set_error("mysql", f"{key} has no transaction numbers", text)
    return MysqlGtidSet(
        {key: _merge(np.array(pairs, dtype=np.int64)) for key, pairs in found.items()}
    )


def encode_mysql_binary(gtid_set: MysqlGtidSet) -> bytes:
    """As in COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS; in the tagged format only if it has tags."""
    is_tagged = gtid_set.is_tagged
    count = len(gtid_set.intervals)
    head = _TAGGED_FORMAT << 56 | count << 8 | _TAGGED_FORMAT if is_tagged else count
    out = [struct.pack("<Q", head)]
    for key in sorted(gtid_set.intervals, key=_sort_key):
        source, _, tag = key.partition(":")
        own = gtid_set.intervals[key]
        out.append(uuid.UUID(source).bytes)
        if is_tagged:
            # The length is a variable-length integer: one byte, shifted by its one length bit.
            out += [bytes([len(tag) << 1]), tag.encode("ascii")]
        out += [struct.pack("<Q", len(own)), own.astype("<i8").tobytes()]
    return b"".join(out)


def _sort_key(key: str) -> tuple[str, str]:
    source, _, tag = key.partition(":")
    return source, tag


def _merge(pairs: Intervals) -> Intervals:
    """Sort the intervals (n, 2) and join overlapping and adjacent ones."""
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    reach = np.maximum.accumulate(pairs[:, 1])
    begins = np.empty(len(pairs), dtype=bool)
    begins[0] = True
    begins[1:] = pairs[1:, 0] > reach[:-1]
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:] - 1, len(pairs) - 1)
    return np.stack([pairs[firsts, 0], reach[lasts]], axis=1)


def _difference(own: Intervals, taken: Intervals) -> Intervals:
    borders = np.unique(np.concatenate([own.ravel(), taken.ravel()]))
    firsts, stops = borders[:-1], borders[1:]
    keep = _covers(own, firsts) & ~_covers(taken, firsts)
    pairs = np.stack([firsts[keep], stops[keep]], axis=1)
    return _merge(pairs) if len(pairs) else pairs


def _covers(intervals: Intervals, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    at = np.searchsorted(intervals[:, 0], numbers, side="right") - 1
    covered: NDArray[np.bool_] = (at >= 0) & (numbers < intervals[np.maximum(at, 0), 1])
    return covered


def _uuid(text: str, whole: str) -> str:
    match = _UUID.fullmatch(text.lower())
    if match is None:
        raise set_error("mysql", f"{text!r} is not the uuid of a server", whole)
    return "-".join(match.groups())
