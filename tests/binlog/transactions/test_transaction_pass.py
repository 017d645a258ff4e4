"""Which events form one transaction, case by case as the servers write them, and against the slow
twin."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.chunk import Role
from cdc_pipeline.binlog.event_types import EventType as T
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.binlog.transactions.grouping_kernel import MARK_ABANDON
from cdc_pipeline.errors import CdcError, DamagedJournalError, TransactionError
from tests.binlog.transactions.grouping_twin import Contradiction, Twin
from tests.support.event_builder import COMMIT_US, MARIADB, JournalBuilder, cut

B, X, R, E, RB, S, J, P = (
    Role.TRANSACTIONBEGIN, Role.OTHER, Role.ROWDATA, Role.TRANSACTIONEND, Role.ROLLBACK,
    Role.STATEMENT, Role.JOURNAL,
    Role.XA_PREPARE,
)  # fmt: skip


def xa_prepare(*, one_phase: bool = False, xid: bytes = b"a") -> bytes:
    return struct.pack("<Biii", one_phase, 1, len(xid), 0) + xid


def grouped(builder: JournalBuilder):
    chunk = builder.chunk()
    step = TransactionPass()
    bounds = step.apply(chunk)
    return chunk.events, bounds, step


def groups(events) -> list[list[int]]:
    """Rows of each transaction; rows outside one are left out."""
    found: dict[int, list[int]] = {}
    for row, offset in enumerate(events["tx_offset"].tolist()):
        if offset >= 0:
            found.setdefault(offset, []).append(row)
    return list(found.values())


# Each case: what a server writes, the roles, the rows of each transaction.
MYSQL_CASES = {
    "BEGIN after the GTID event stays in the same transaction": (
        lambda b: b.gtid().query("BEGIN").rows().xid(), [B, X, R, R, E], [[0, 1, 2, 3, 4]],
    ),
    "DDL is a GTID event and one query": (
        lambda b: b.ddl("ALTER TABLE t ADD c INT").transaction(), [B, S, B, X, R, R, E],
        [[0, 1], [2, 3, 4, 5, 6]],
    ),
    "MyISAM ends with the query COMMIT": (
        lambda b: b.gtid().query("BEGIN").rows().query("COMMIT"), [B, X, R, R, E],
        [[0, 1, 2, 3, 4]],
    ),
    "a group may end with ROLLBACK": (
        lambda b: b.gtid().query("BEGIN").query("INSERT INTO t VALUES (1)").query("ROLLBACK"),
        [B, X, S, RB], [[0, 1, 2, 3]],
    ),
    "CREATE ... SELECT: the statement stays inside": (
        lambda b: b.gtid().query("BEGIN").query("CREATE TABLE t (a INT) START TRANSACTION").rows().xid(),  # noqa: E501
        [B, X, S, R, R, E], [[0, 1, 2, 3, 4, 5]],
    ),
    "K8: XA PREPARE ends its group; XA COMMIT is the next": (
        lambda b: b.gtid().query("XA START X'61',X'',1").rows().query("XA END X'61',X'',1")
        .add(T.XA_PREPARE, xa_prepare()).gtid().query("XA COMMIT X'61',X'',1"),
        [B, S, R, R, S, P, B, S], [[0, 1, 2, 3, 4, 5], [6, 7]],
    ),
    "K8: ONE PHASE is a prepare that commits": (
        lambda b: b.gtid().query("XA START X'61',X'',1").rows().query("XA END X'61',X'',1")
        .add(T.XA_PREPARE, xa_prepare(one_phase=True)).transaction(),
        [B, S, R, R, S, E, B, X, R, R, E], [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]],
    ),
    "SAVEPOINT and ROLLBACK TO stay inside": (
        lambda b: b.gtid().query("BEGIN").query("SAVEPOINT s").rows().query("ROLLBACK TO `s`").xid(),  # noqa: E501
        [B, X, S, R, R, S, E], [[0, 1, 2, 3, 4, 5, 6]],
    ),
    "XA START opens a body; XA COMMIT is a transaction by itself": (
        lambda b: b.gtid().query("XA START X'61',X'',1").rows().query("XA END X'61',X'',1").query("COMMIT")  # noqa: E501
        .gtid().query("XA COMMIT X'61',X'',1"),
        [B, S, R, R, S, E, B, S], [[0, 1, 2, 3, 4, 5], [6, 7]],
    ),
    "a log without GTIDs: BEGIN is the begin, a statement is alone": (
        lambda b: b.query("BEGIN").rows().xid().query("CREATE TABLE t (a INT)"),
        [B, R, R, E, S], [[0, 1, 2, 3], [4]],
    ),
    "an anonymous GTID event begins a transaction": (
        lambda b: b.add(T.ANONYMOUS_GTID, bytes(60)).query("BEGIN").rows().xid(), [B, X, R, R, E],
        [[0, 1, 2, 3, 4]],
    ),
    "marks of the journal stand outside": (
        lambda b: b.fde().add(T.PREVIOUS_GTIDS, bytes(8)).transaction().add(T.ROTATE, bytes(20)),
        [J, J, B, X, R, R, E, J], [[2, 3, 4, 5, 6]],
    ),
    "a rows query is a member": (
        lambda b: b.gtid().query("BEGIN").add(T.ROWS_QUERY, b"\x04text").rows().xid(),
        [B, X, X, R, R, E], [[0, 1, 2, 3, 4, 5]],
    ),
}  # fmt: skip

MARIADB_CASES = {
    "the GTID event is the begin, XID the end": (
        lambda b: b.mariadb_gtid(0x0C).rows().xid(), [B, R, R, E], [[0, 1, 2, 3]],
    ),
    "standalone: one statement is the transaction": (
        lambda b: b.mariadb_gtid(0x29).query("ALTER TABLE t ADD c INT").mariadb_gtid(0).rows().query("COMMIT"),  # noqa: E501
        [B, S, B, R, R, E], [[0, 1], [2, 3, 4, 5]],
    ),
    "CREATE ... SELECT without BEGIN": (
        lambda b: b.mariadb_gtid(0x28).query("CREATE TABLE t (a INT)").rows().xid(),
        [B, S, R, R, E], [[0, 1, 2, 3, 4]],
    ),
    "annotate and ROLLBACK TO stay inside": (
        lambda b: b.mariadb_gtid(0).query("SAVEPOINT `s`").add(T.MARIADB_ANNOTATE_ROWS,
            b"insert").rows()
        .query("ROLLBACK TO `s`").xid(),
        [B, S, X, R, R, S, E], [[0, 1, 2, 3, 4, 5, 6]],
    ),
    "XA COMMIT is standalone (flags 0x8d)": (
        lambda b: b.mariadb_gtid(0x8D).query("XA COMMIT X'61',X'',1").mariadb_gtid(0).rows().xid(),
        [B, S, B, R, R, E], [[0, 1], [2, 3, 4, 5]],
    ),
    "lists and checkpoints stand outside": (
        lambda b: b.fde().add(T.MARIADB_GTID_LIST, bytes(4)).add(T.MARIADB_BINLOG_CHECKPOINT,
            bytes(20))
        .mariadb_gtid(0).rows().xid().add(T.STOP),
        [J, J, X, B, R, R, E, J], [[3, 4, 5, 6]],
    ),
    "START ALTER and ROLLBACK ALTER are no statements, COMMIT ALTER is": (
        lambda b: b.mariadb_gtid(0x29, 1, 0x02).query("ALTER TABLE t ADD c INT").mariadb_gtid(0x29,
            2, 0x04)
        .query("ALTER TABLE t ADD c INT").mariadb_gtid(0x2B, 3,
            0x02).query("ALTER TABLE t ADD d INT")
        .mariadb_gtid(0x2B, 4, 0x08).query("ALTER TABLE t ADD d INT").mariadb_gtid(0x2B,
            5).query("DROP TABLE t"),
        [B, E, B, S, B, E, B, E, B, S], [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]],
    ),
    "an xid before the extra flags does not hide them": (
        lambda b: b.mariadb_gtid(0xC3, 1, 0x02).query("ALTER TABLE t ADD c INT"), [B, E], [[0, 1]],
    ),
    "LOAD DATA as a statement": (
        lambda b: b.mariadb_gtid(0x0C).load("LOAD DATA INFILE 'f' INTO TABLE t").xid(),
        [B, X, X, S, E],
        [[0, 1, 2, 3, 4]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MYSQL_CASES)
def test_t1_mysql_groups(case: str) -> None:
    write, roles, members = MYSQL_CASES[case]
    events, _, _ = grouped(write(JournalBuilder()))
    assert events["role"].tolist() == roles
    assert groups(events) == members


@pytest.mark.parametrize("case", MARIADB_CASES)
def test_t1_mariadb_groups(case: str) -> None:
    write, roles, members = MARIADB_CASES[case]
    events, _, _ = grouped(write(JournalBuilder(journal_format=MARIADB)))
    assert events["role"].tolist() == roles
    assert groups(events) == members


def test_k1_ordinals_count_from_the_first_event_and_offset_is_that_of_the_gtid_event() -> None:
    events, _, _ = grouped(JournalBuilder().fde().transaction(2).transaction(1))
    assert events["tx_ordinal"].tolist() == [0, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]
    assert set(events["tx_offset"][1:7].tolist()) == {int(events["offset"][1])}
    assert set(events["tx_offset"][7:].tolist()) == {int(events["offset"][7])}


def test_commit_time_is_the_gtid_events_own_on_mysql_and_its_header_time_on_mariadb() -> None:
    mysql, _, _ = grouped(JournalBuilder().transaction())
    assert set(mysql["commit_ts_us"].tolist()) == {COMMIT_US}
    mariadb, _, _ = grouped(
        JournalBuilder(journal_format=MARIADB, timestamp_s=1_700_000_009)
        .mariadb_gtid(0)
        .rows()
        .xid()
    )
    assert set(mariadb["commit_ts_us"].tolist()) == {1_700_000_009_000_000}
    plain, _, _ = grouped(JournalBuilder(timestamp_s=1_700_000_003).query("BEGIN").rows().xid())
    assert set(plain["commit_ts_us"].tolist()) == {1_700_000_003_000_000}


def test_bounds_name_starts_ends_statements_and_boundaries() -> None:
    _, bounds, step = grouped(
        JournalBuilder().fde().transaction().ddl("DROP TABLE t").gtid().query("BEGIN")
    )
    assert bounds.starts.tolist() == [1, 6, 8]
    assert bounds.ends.tolist() == [5, 7]
    assert bounds.statements.tolist() == [7]
    assert bounds.boundaries.tolist() == [1, 6, 8]
    assert step.is_open
    assert step.transactions == 2


@pytest.mark.parametrize("end", [T.ROTATE, T.STOP, T.FORMAT_DESCRIPTION])
def test_k5_a_transaction_that_the_journals_end_leaves_open_is_counted_not_lost(end: T) -> None:
    events, bounds, step = grouped(
        JournalBuilder().transaction().gtid().query("BEGIN").rows().add(end, bytes(57))
    )
    assert step.abandoned == 1
    assert step.transactions == 1
    assert not step.is_open
    assert bounds.marks[-1] == MARK_ABANDON
    assert bounds.ends.tolist() == [4]
    assert events["tx_offset"][-1] == -1


def test_k5_the_next_journals_format_description_abandons_too() -> None:
    step = TransactionPass()
    step.apply(JournalBuilder().gtid().query("BEGIN").rows().chunk())
    bounds = step.apply(JournalBuilder(journal="binlog.000002").fde().transaction().chunk())
    assert bounds.begins_inside
    assert (step.abandoned, step.transactions) == (1, 1)


@pytest.mark.parametrize(
    ("write", "row", "error"),
    [
        (lambda b: b.fde().rows(), 1, TransactionError),
        (lambda b: b.fde().xid(), 1, TransactionError),
        (lambda b: b.fde().query("COMMIT"), 1, TransactionError),
        (lambda b: b.fde().query("ROLLBACK"), 1, TransactionError),
        (lambda b: b.gtid().query("BEGIN").rows().gtid(), 4, TransactionError),
        (lambda b: b.gtid().query("BEGIN").query("BEGIN"), 2, TransactionError),
        (lambda b: b.query("BEGIN").query("BEGIN"), 1, TransactionError),
        (lambda b: b.gtid().query("BEGIN").add(T.PREVIOUS_GTIDS, bytes(8)), 2, TransactionError),
        (lambda b: b.gtid().add(T.QUERY, bytes(9)), 1, DamagedJournalError),
        (lambda b: b.gtid().add(T.QUERY, b"\0" * 8 + b"\xff" + bytes(10)), 1, DamagedJournalError),
        (lambda b: b.add(T.MARIADB_GTID, bytes(12)), 0, DamagedJournalError),
        (lambda b: b.gtid().query("XA START X'61'").rows().add(T.XA_PREPARE, bytes(12)), 4,
            DamagedJournalError),
        (lambda b: b.fde().add(T.XA_PREPARE, xa_prepare()), 1, TransactionError),
    ],
)  # fmt: skip
def test_contradictions_stop_with_the_events_place(write, row: int, error: type[CdcError]) -> None:
    chunk = write(JournalBuilder()).chunk()
    with pytest.raises(error) as caught:
        TransactionPass().apply(chunk)
    assert type(caught.value) is error
    assert caught.value.journal == "binlog.000001"
    assert caught.value.offset == int(chunk.events["offset"][row])
    assert caught.value.next_step


def test_a_journal_that_changes_inside_a_transaction_without_its_head_stops() -> None:
    step = TransactionPass()
    step.apply(JournalBuilder().gtid().query("BEGIN").chunk())
    with pytest.raises(TransactionError, match="journal changes inside a transaction"):
        step.apply(JournalBuilder(journal="binlog.000002", offset=900).rows().xid().chunk())


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("commit", E), ("COMMIT /* implicit */", E), ("/* c */ CoMmIt ;", E), ("COMMIT -- x", E),
        ("  ROLLBACK\n", RB),
        ("ROLLBACK TO s", S), ("COMMITTED", S), ("COMMIT_", S), ("/*!80000 COMMIT */", S),
        ("/*M!100100 COMMIT */", S),
        ("ROLLBACK/", S), ("", S), ("/* COMMIT", S), ("COMMIT\u00e9", S), ("# COMMIT", S),
        ("COMMIT#", E),
    ],
)  # fmt: skip
def test_query_texts_are_recognised_exactly(text: str, role: Role) -> None:
    events, _, _ = grouped(JournalBuilder().gtid().query("BEGIN").query(text))
    assert events["role"][-1] == role


PIECES = st.sampled_from(
    [
        ("gtid",), ("query", "BEGIN"), ("query", "COMMIT"), ("query", "rollback /* x */"),
        ("query", "SAVEPOINT a"),
        ("query", "XA START X'61'"), ("query", " xa  begin 'b'"),
        ("query", "CREATE TABLE t (a INT)"), ("rows",),
        ("xid",), ("mariadb_gtid", 0), ("mariadb_gtid", 1), ("mariadb_gtid", 0x8D), ("fde",),
        ("add", T.ROTATE, b"12345678"),
        ("add", T.PREVIOUS_GTIDS, bytes(8)), ("add", T.HEARTBEAT, b"x"),
        ("add", T.ROWS_QUERY, b"xx"),
        ("transaction", 3), ("transaction", 1), ("ddl", "ALTER TABLE t ADD b INT"),
        ("query", "begin"),
        ("query", "/* COMMIT */ ;-- \n#x\nCOMMIT"), ("query", "XAS START"),
        ("query", "XA/**/START"),
        ("add", T.XA_PREPARE, xa_prepare()), ("add", T.XA_PREPARE, xa_prepare(one_phase=True)),
        ("mariadb_gtid", 0x4C),
        ("mariadb_gtid", 0x29, 1, 0x02), ("mariadb_gtid", 0xAB, 1, 0x08),
        ("load", "LOAD DATA INFILE 'f' INTO TABLE t"),
    ]
)  # fmt: skip


@settings(max_examples=150)
@given(pieces=st.lists(PIECES, max_size=25), sizes=st.lists(st.integers(1, 7), max_size=8))
def test_the_kernel_agrees_with_its_twin_whatever_the_chunk_borders(pieces, sizes) -> None:
    builder = JournalBuilder(journal_format=MARIADB)
    for name, *arguments in pieces:
        getattr(builder, name)(*arguments)
    whole = builder.chunk()
    twin, step = Twin(), TransactionPass()
    contradiction = None
    try:
        twin.apply(whole)
    except Contradiction as found:
        contradiction = int(whole.events["offset"][found.row])
    written = []
    failed = None
    for chunk in cut(whole, sizes):
        grouped_chunk = step.step(chunk)
        fields = ["role", "tx_offset", "tx_ordinal", "commit_ts_us"]
        written += [tuple(row) for row in grouped_chunk.events[fields].tolist()]
        if grouped_chunk.error is not None:
            failed = grouped_chunk.error.offset
            break
    assert written == twin.rows
    assert failed == contradiction
    assert (step.transactions, step.rolled_back, step.abandoned) == (
        twin.committed,
        twin.rolled_back,
        twin.abandoned,
    )
    assert step.prepared == twin.prepared
    assert step.is_open == twin.open
