"""What a real server will purge against what is still needed, and how soon."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_pipeline.lake.long_operations import Operation, OperationFolder, new_operation_id
from cdc_pipeline.operations.doctor import Finding
from cdc_pipeline.position.cursor import OpenXa, Suspension, TargetState
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.retention import journal_retention
from tests.operations.doctor.helpers import (
    carry_out,
    cursor_at,
    diagnosis,
    is_fine,
    live,
    only,
    pipeline,
    troubles,
)
from tests.servers import Server

AREAS = ("retention",)
HOUR_S = 3600


@pytest.fixture(
    params=[
        "mysql",
        "mariadb",
    ]
)
def own(request: pytest.FixtureRequest, start_server: Callable[..., Server]) -> Server:
    """A server of the test's own, whose journals may be purged: three of them."""
    started = start_server(request.param)
    for _ in range(2):
        started.flush_journal()
    return started


def _needed(own: Server, folder: Path, **arguments: object) -> list[Finding]:
    """What is found of those who need the log, fine or not."""
    archive = arguments.pop("archive", None)
    source = live(own) | ({} if archive is None else {"archive_directory": archive})
    found = diagnosis(pipeline(source, folder), areas=AREAS, **arguments)  # type: ignore[arg-type]
    return [one for one in found.findings if one.check == "needed"]


def test_journals_that_will_be_purged_are_told_before(own: Server, tmp_path: Path) -> None:
    """One server, step by step: plenty of time, little, too little, gone, and then from an
    archive."""
    first, second, _ = (path.name for path in own.journals())
    own.execute(f"SET GLOBAL binlog_expire_logs_seconds = {9 * HOUR_S}")
    cursor = cursor_at(own, first)
    (told,) = _needed(own, tmp_path, cursor=cursor, every_s=HOUR_S)
    assert told.severity == "ok"
    assert (
        told.what == f"{first}, which the cursor needs, would be purged in 9 hours at the earliest"
    )
    (told,) = _needed(own, tmp_path, cursor=cursor, every_s=4 * HOUR_S)
    assert told.severity == "warning"
    (told,) = _needed(own, tmp_path, cursor=cursor, every_s=10 * HOUR_S)
    assert told.severity == "error"
    assert "10 hours" in told.expected
    assert carry_out(own, [told]) == 1
    (told,) = _needed(own, tmp_path, cursor=cursor, every_s=10 * HOUR_S)
    assert told.severity == "ok"

    # Others count as well: a suspended table, and a load that is under way.
    held = Suspension(batch_number=0, error="SchemaError", what="no", journal=first, offset=4)
    state = TargetState(
        table="shop.t", app_id="a", table_version=0, applied_batch=0, suspended=held
    )
    cursor = cursor_at(own, second, targets={"shop.t": state})
    config = pipeline(live(own), tmp_path)
    folder = OperationFolder(config, new_operation_id())
    folder.create(
        Operation(
            operation_id=folder.operation_id, source="shop",
            sources=("shop.old",), targets=("shop.old",),
            cursor=cursor_at(own, first), time_us=1, started_at_us=1,
        )
    )  # fmt: skip
    names = [
        one.what.partition(", which ")[2].split(" needs")[0]
        for one in _needed(own, tmp_path, cursor=cursor)
    ]
    assert sorted(names) == ["shop.t", "the cursor", "the snapshot of shop.old"]
    left = only(diagnosis(config, areas=["lake"]), "left behind")
    assert (left.severity, left.next_step) == (
        "warning",
        "cdc-pipeline snapshot shop --table shop.old",
    )
    with folder.locked():
        assert only(diagnosis(config, areas=["lake"]), "left behind").severity == "note"

    archive = tmp_path / "archive"
    archive.mkdir()
    shutil.copy(own.journals()[0], archive)
    own.purge_to(second)
    shutil.rmtree(tmp_path / "lake")
    cursor = cursor_at(own, first)
    (told,) = _needed(own, tmp_path, cursor=cursor)
    assert told.severity == "error"
    assert told.what == f"{first}, which the cursor needs, is no longer on the server"
    assert "source.archive_directory" in told.next_step
    # `snapshot` alone would be refused: it begins where the log goes on from the cursor
    assert "`cdc-pipeline cursor set shop --from latest`" in told.next_step
    (told,) = _needed(own, tmp_path, cursor=cursor, archive=archive)
    assert told.severity == "ok"

    config = pipeline(live(own, archive_directory=archive), tmp_path)
    assert is_fine(diagnosis(config, areas=AREAS), "archive")
    own.purge_to(own.journals()[-1].name)
    gap = only(diagnosis(config, areas=AREAS), "archive")
    assert (gap.severity, gap.got) == ("warning", f"missing: {second.rpartition('.')[2]}")


def test_old_xa_transactions_are_told(mysql_server: Server, tmp_path: Path) -> None:
    journal, offset = mysql_server.end_position()
    open_xa = OpenXa(xid="X'61',X'',1", begin=Position(journal), prepared_at_us=1)
    cursor = cursor_at(mysql_server, journal, offset, open_xa=(open_xa,))
    config = pipeline(live(mysql_server), tmp_path)
    mysql_server.execute("GRANT XA_RECOVER_ADMIN ON *.* TO cdc@'%'")  # which another test may do
    mysql_server.execute("REVOKE XA_RECOVER_ADMIN ON *.* FROM cdc@'%'")
    found = only(diagnosis(config, cursor=cursor, areas=AREAS), "open XA")
    assert found.severity == "warning"
    assert "XA COMMIT X'61',X'',1;" in found.next_step
    mysql_server.execute("GRANT XA_RECOVER_ADMIN ON *.* TO cdc@'%'")
    gone = only(diagnosis(config, cursor=cursor, areas=AREAS), "open XA")
    assert "no longer has the XA transaction X'61',X'',1" in gone.what
    assert gone.next_step.startswith("cdc-pipeline run ")


def test_a_server_that_purges_nothing_is_a_note(mysql_server: Server, tmp_path: Path) -> None:
    before = mysql_server.variable("binlog_expire_logs_seconds")
    mysql_server.execute("SET GLOBAL binlog_expire_logs_seconds = 0")
    try:
        found = diagnosis(pipeline(live(mysql_server), tmp_path), areas=AREAS)
        assert only(found, "expiry").severity == "note"
        assert (
            only(found, "expiry").next_step == "SET PERSIST binlog_expire_logs_seconds = 864000;"
        )  # ten times the day that is assumed
    finally:
        mysql_server.execute(f"SET GLOBAL binlog_expire_logs_seconds = {before}")
    assert not troubles(found, "needed")


@pytest.mark.parametrize(
    ("variables", "expire_s", "total_bytes", "setting"),
    [
        ({"binlog_expire_logs_seconds": "60", "expire_logs_days": "0"}, 60, None,
            "binlog_expire_logs_seconds = 60"),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "2"}, 172800, None,
         "binlog_expire_logs_seconds = 0, expire_logs_days = 2"),
        ({"expire_logs_days": "7"}, 604800, None, "expire_logs_days = 7"),
        ({"binlog_expire_logs_seconds": "3600", "binlog_expire_logs_auto_purge": "OFF"}, None, None,
         "binlog_expire_logs_auto_purge = OFF"),
        ({"binlog_expire_logs_seconds": "0", "max_binlog_total_size": "4096"}, None, 4096,
         "binlog_expire_logs_seconds = 0, max_binlog_total_size = 4096"),
    ],
)  # fmt: skip
def test_each_servers_way_to_say_how_long(
    variables: dict[str, str], expire_s: float | None, total_bytes: int | None, setting: str
) -> None:
    found = journal_retention(variables)
    assert (found.expire_s, found.total_bytes, found.setting) == (expire_s, total_bytes, setting)
