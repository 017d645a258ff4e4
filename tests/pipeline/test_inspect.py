"""The `binlog` command's reading of journals, on the shop that ships with the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.errors import DamagedJournalError
from cdc_pipeline.pipeline.change_log import ChangeLog
from cdc_pipeline.pipeline.inspect import changes
from cdc_pipeline.pipeline.selection import Selection
from cdc_pipeline.source.archive_files import read_journal

JOURNALS = SHOP_DIRECTORY / "journals"


def test_every_change_has_its_gtid_however_the_journal_is_cut() -> None:
    """The large transaction's rows come many chunks after its GTID event."""
    log = ChangeLog(Selection(tables=("*.stock_movements",)))
    found = []
    for chunk in read_journal(JOURNALS / "binlog.000003", chunk_bytes=4096):
        for piece in log.feed(chunk):
            for table in piece.tables:
                gtids = piece.gtids_of(table.rows)
                found += [gtids.text(index) for index in range(len(table.rows))]
    assert len(found) > 1000
    assert None not in found


def test_changes_before_damage_are_printed(tmp_path: Path) -> None:
    whole = list(changes([JOURNALS / "binlog.000001"]))
    data = bytearray((JOURNALS / "binlog.000001").read_bytes())
    data[len(data) // 2] ^= 0x40
    damaged = tmp_path / "binlog.000001"
    damaged.write_bytes(data)
    printed: list[str] = []
    with pytest.raises(DamagedJournalError) as caught:
        printed.extend(changes([damaged]))
    assert printed
    assert printed == whole[: len(printed)]
    assert caught.value.offset is not None
    assert json.loads(printed[-1])["offset"] < caught.value.offset
