"""What cannot be read is refused with its own reason (F85)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.events.gtid import NUMBER_MAX, executed
from cdc_pipeline.binlog.events.gtid_columns import GtidColumns
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.errors import SizeLimitError, UnsupportedEventError
from tests.support.journal_builder import JournalBuilder, format_description_body


def framed(builder: JournalBuilder) -> Chunk | None:
    framer = EventFramer("binlog.000001")
    return framer.feed(np.frombuffer(bytes(builder.data[4:]), np.uint8))[0]


def test_f85_a_relay_log_is_named() -> None:
    builder = JournalBuilder()
    builder.format_description(flags=0x40)
    with pytest.raises(UnsupportedEventError, match="relay log") as refused:
        framed(builder)
    assert "log_replica_updates" in refused.value.next_step


@pytest.mark.parametrize("types", [19, 22, 24])
def test_f85_rows_of_mysql_before_the_release_of_5_1_are_named(types: int) -> None:
    builder = JournalBuilder(checksum=False)
    body = format_description_body(server_version="5.1.4-alpha", types=types)
    builder.event(15, body[:-1])  # without the algorithm of checksums, which it did not know
    with pytest.raises(UnsupportedEventError, match="before its release"):
        framed(builder)


def test_f85_a_journal_of_mysql_before_5_0_is_named() -> None:
    builder = JournalBuilder(checksum=False)
    builder.event(1, struct.pack("<H50sI", 3, b"4.1.22-log", 0))
    with pytest.raises(UnsupportedEventError, match="START_V3") as refused:
        framed(builder)
    assert "before MySQL 5.0" in refused.value.next_step


def test_f85_a_number_of_mariadb_that_is_too_large_is_no_damage() -> None:
    builder = JournalBuilder()
    builder.format_description(server_version="10.11.19-MariaDB-log", types=171)
    builder.event(162, struct.pack("<QIB", NUMBER_MAX + 2, 0, 0) + bytes(6))
    chunk = framed(builder)
    assert chunk is not None
    for read in (lambda: executed(chunk, 0, 2), lambda: GtidColumns().feed(chunk)):
        with pytest.raises(SizeLimitError, match="too large") as refused:
            read()
        assert str(refused.value.got) == f"0-7-{NUMBER_MAX + 2}"
