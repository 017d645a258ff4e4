"""An archive of ten thousand journals, a terabyte by their sizes.

Each begins as a real one does: format description, the set of GTIDs that precede it, a few
transactions. The rest of its 100 MB is a hole in the file, which no reader accepts as events: so
planning that read more than it needs would fail, not only be slow. Three are whole: the first, the
last, and the one that holds the places that are searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.position.gtid.sets import encode_mysql_binary, parse_mysql
from tests.support.event_builder import gtid_body, query_body
from tests.support.journal_builder import JournalBuilder

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"  # that `gtid_body` writes
FIRST_S = 1_700_000_000
JOURNAL_S = 180
TRANSACTIONS = 4
_FULL_BYTES = 100 << 20
_WHOLE_TRANSACTIONS_BYTES = 16 << 20
_ROW_BYTES = 8 << 10


@dataclass(frozen=True)
class Archive:
    """The archive, and one transaction in the middle of a whole journal. `gtid_set`: everything
    that was executed before that transaction; `time_us`: its commit time.
    """

    folder: Path
    journals: int
    journal: str
    offset: int
    created_s: int
    gtid_set: str
    time_us: int


def write_archive(folder: Path, journals: int) -> Archive:
    folder.mkdir(parents=True)
    middle = journals * 7 // 10
    found = None
    executed = 0
    for number in range(1, journals + 1):
        is_whole = number in (1, middle, journals)
        builder, places = _journal(number, executed, many=number == middle)
        executed += len(places)
        file = folder / name_of(number)
        if is_whole and number < journals:
            following = name_of(number + 1).encode()
            builder.event(EventType.ROTATE, (4).to_bytes(8, "little") + following)
        file.write_bytes(builder.data)
        if not is_whole:
            with file.open("r+b") as stream:
                stream.truncate(_FULL_BYTES)
        if number == middle:
            gno, offset, time_us = places[len(places) // 2]
            found = Archive(
                folder=folder,
                journals=journals,
                journal=name_of(number),
                offset=offset,
                created_s=created_s(number),
                gtid_set=f"{UUID}:1-{gno - 1}",
                time_us=time_us,
            )
    assert found is not None
    return found


def name_of(number: int) -> str:
    return f"binlog.{number:06}"


def created_s(number: int) -> int:
    return FIRST_S + JOURNAL_S * number


def _journal(
    number: int, executed: int, *, many: bool
) -> tuple[JournalBuilder, list[tuple[int, int, int]]]:
    """Return a journal without its end, and GTID number, offset and commit time of each
    transaction."""
    builder = JournalBuilder(timestamp_s=created_s(number))
    builder.format_description()
    before = parse_mysql(f"{UUID}:1-{executed}" if executed else "")
    builder.event(EventType.PREVIOUS_GTIDS, encode_mysql_binary(before))
    count = _WHOLE_TRANSACTIONS_BYTES // _ROW_BYTES if many else TRANSACTIONS
    row = bytes(_ROW_BYTES if many else 64)
    places: list[tuple[int, int, int]] = []
    for gno in range(executed + 1, executed + count + 1):
        time_us = created_s(number) * 1_000_000 + len(places) * (JOURNAL_S - 2) * 1_000_000 // count
        places.append((gno, builder.offset, time_us))
        builder.event(EventType.GTID, gtid_body(gno, time_us))
        builder.event(EventType.QUERY, query_body("BEGIN"))
        builder.rows(1, row)
        builder.event(EventType.XID, bytes(8))
    return builder, places
