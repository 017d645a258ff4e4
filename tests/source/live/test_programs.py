"""What changed a server's programs is read from the log as the server read it (K29)."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.programs import placed_programs
from cdc_pipeline.text.table_names import NameRule
from tests.support.event_builder import JournalBuilder, query_body

NO_BACKSLASH_ESCAPES = 1 << 20


@pytest.mark.parametrize(("sql_mode", "is_renamed"), [(NO_BACKSLASH_ESCAPES, True), (0, False)])
def test_k29_a_rename_is_seen_in_the_mode_of_its_session(sql_mode: int, is_renamed: bool) -> None:
    sql = r"ALTER TABLE t COMMENT 'x\', RENAME TO u -- '"
    status = b"\x01" + struct.pack("<Q", sql_mode)
    chunk = JournalBuilder().fde().gtid().add(EventType.QUERY, query_body(sql, "d", status)).chunk()
    server: Any = SimpleNamespace(
        flavor="mysql",
        query=lambda _sql: ((), [("GRANT ALL PRIVILEGES ON *.* TO `u`@`%`",)]),
        rows=lambda _sql: [],
        end_position=lambda: Position(chunk.journal, chunk.end_offset),
        no_refusal=nullcontext,
    )
    source: Any = SimpleNamespace(
        chunks=lambda _start, _end: (chunk for chunk in (chunk,)),
        identity=SimpleNamespace(names=NameRule.AS_GIVEN),
    )
    programs = placed_programs(server, source, since=Position(chunk.journal, 4))
    assert programs is not None
    reached = programs.reached(
        [("d", "t"), ("d", "v")], sql="", written=[("d", "t")], journal=chunk.journal, offset=4
    )
    assert (("d", "v") in reached) is is_renamed
