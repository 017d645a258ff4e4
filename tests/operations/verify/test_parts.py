"""What a verification is made of, without server and Spark."""

from __future__ import annotations

import datetime as dt
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.selected import SNAPSHOT_SEQS, SelectedRows
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.cli.verify import DIFFERENT, UNPROVED, exit_code, lines_of
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.earlier_layouts import column_defaults_after
from cdc_pipeline.lake.long_operations import OperationFolder
from cdc_pipeline.lake.records import ColumnDefault, Cut, CutTable, RecordedContent, RecordedTarget
from cdc_pipeline.operations.verify.captures import Captures
from cdc_pipeline.operations.verify.checks import checks_of
from cdc_pipeline.operations.verify.read import (
    KEYS_PER_STATEMENT,
    VerifyContext,
    VerifyOptions,
    conditions,
    leads_back,
)
from cdc_pipeline.operations.verify.repair import _staged, repairable
from cdc_pipeline.operations.verify.report import (
    Difference,
    ExternalChange,
    Status,
    TableVerified,
    VerifyReport,
)
from cdc_pipeline.operations.verify.reread import RepairReport, _Reread
from cdc_pipeline.operations.verify.table import RoundsResult
from cdc_pipeline.operations.verify.verify import _Verification
from cdc_pipeline.operations.verify.verify import why_not as name_is_not_compared
from cdc_pipeline.position.cursor import MemoryCursorStore, TargetState
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    DropColumn,
    FillColumns,
    RemoveRows,
    RenameColumn,
    Step,
    WidenColumn,
)
from cdc_pipeline.schema.target_spec import RecordedSource, TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.modes.expand import DELETE, INSERT, LEAVE, UPDATE
from cdc_pipeline.sink.verify.sides import ComparisonSides
from cdc_pipeline.sink.verify.tables import VersionedTable
from cdc_pipeline.source.rows.table_reader import ALL_ROWS
from tests.support.sink_values import cursor_at, interval_of

BASE = pack_seq(3, 7, 4711)


def schema(*columns: tuple[str, Kind], **more: Any) -> TableSchema:
    made = tuple(
        Column(name, kind, wire_type=-1, wire_meta=0, nullable=True, **more)
        for name, kind in columns
    )
    return TableSchema("d", "t", made, (0,))


def asked(table: TableSchema, **keys: list[Any]) -> list[str]:
    return list(
        conditions(
            table, list(keys), [pa.chunked_array([pa.array(values)]) for values in keys.values()]
        )
    )


@pytest.mark.parametrize(
    ("kind", "value", "literal"),
    [
        (Kind.INT64, -5, "-5"),
        (Kind.DECIMAL, Decimal("12345678901234567890.10"), "12345678901234567890.10"),
        (Kind.BIT, True, "1"),
        (Kind.TEXT, "a'\u00e9", "'a''\u00e9'"),
        (Kind.TEXT, "a\\\u00e9", "_utf8mb4 x'615cc3a9'"),
        (Kind.ENUM, "x", "'x'"),
        (Kind.BINARY, b"\x00'", "x'0027'"),
        (Kind.DATE, dt.date(1, 2, 3), "'0001-02-03'"),
        (
            Kind.DATETIME,
            dt.datetime.fromisoformat("2020-01-02 03:04:05.000600"),
            "'2020-01-02 03:04:05.000600'",
        ),
        (Kind.TIMESTAMP, dt.datetime(2020, 1, 2, tzinfo=dt.UTC), "'2020-01-02 00:00:00.000000'"),
        (Kind.TIME, "-838:59:59", "'-838:59:59'"),
    ],
)
def test_a_key_of_the_lake_is_asked_for_in_the_servers_sql(
    kind: Kind, value: Any, literal: str
) -> None:
    assert asked(schema(("k`", kind)), **{"k`": [value]}) == [f"`k``` IN ({literal})"]


def test_keys_of_several_columns_and_null_and_many_of_them() -> None:
    two = schema(("a", Kind.INT32), ("b", Kind.TEXT))
    assert asked(two, a=[1, 2], b=["x", "y"]) == [
        "(`a` <=> 1 AND `b` <=> 'x') OR (`a` <=> 2 AND `b` <=> 'y')"
    ]
    assert asked(two, a=[1], b=[None]) == ["(`a` <=> 1 AND `b` <=> NULL)"]
    many = asked(schema(("a", Kind.INT32)), a=list(range(2 * KEYS_PER_STATEMENT + 1)))
    assert len(many) == 3


def test_a_key_leads_back_unless_it_is_masked_retyped_or_a_float() -> None:
    types = {"a": "int", "b": "string"}
    plain = schema(("a", Kind.INT32), ("b", Kind.TEXT))
    assert leads_back(plain, ["a", "b"], types)
    assert leads_back(plain, ["a"], {"a": "bigint"})
    assert not leads_back(plain, ["a"], {"a": "string"})
    assert not leads_back(schema(("b", Kind.TEXT), masked="hash:1"), ["b"], types)
    assert not leads_back(schema(("f", Kind.FLOAT)), ["f"], {"f": "float"})
    assert not leads_back(plain, [], types)


def found(*rows: tuple[str, int, int | None, int]) -> pa.Table:
    """kind, key, value, more."""
    kinds, keys, values, more = (list(column) for column in zip(*rows, strict=True))
    return pa.table(
        {
            "_kind": kinds, "_columns": pa.array([[]] * len(rows), pa.list_(pa.string())),
            "_more": pa.array(more, pa.int64()), "c0": pa.array(keys, pa.int32()),
            "c1": pa.array(values, pa.int32()),
        }
    )  # fmt: skip


def sides(*key: str, columns: tuple[str, ...] = ("id", "v")) -> ComparisonSides:
    listed = tuple(
        TargetColumn(name=name, delta_type="int")
        for name in ("id", "v", "dropped")[: max(2, len(columns))]
    )
    target = RecordedTarget(table="d.t", app_id="x", spec=TargetSpec(columns=listed, key=key))
    return ComparisonSides(
        target=target, columns=("id", "v"), key=key, lake=VersionedTable("d.t", Path(), 0)
    )


def test_k17_repaired_rows_are_newer_than_the_lake_and_older_than_all_that_comes() -> None:
    rows = found(
        ("missing", 1, 10, 1),
        ("different", 2, 20, 0),
        ("extra", 3, 30, -1),
        ("duplicate", 4, 40, -1),
    )
    staged = _staged(sides("id"), rows, base=BASE, first=0, ts_us=5)
    assert staged.table.column("_op").to_pylist() == [INSERT, UPDATE, DELETE, DELETE]
    assert staged.table.column("_seq").to_pylist() == [BASE + 1, BASE + 1, BASE, BASE]
    assert (staged.rows_inserted, staged.rows_updated, staged.rows_deleted, staged.partial) == (
        1,
        1,
        2,
        False,
    )
    again = _staged(sides("id"), rows, base=BASE, first=3, ts_us=5)
    assert again.table.column("_seq").to_pylist() == [BASE + 7, BASE + 7, BASE + 6, BASE + 6]
    assert pack_seq(3, 7, 4711, event_ordinal=2) == BASE + 2 * SNAPSHOT_SEQS, (
        "where the rows of the next event begin"
    )
    with pytest.raises(LakeStateError, match="no room for more repairs"):
        _staged(sides("id"), rows, base=BASE, first=SNAPSHOT_SEQS, ts_us=5)


def test_rows_without_a_key_come_and_go_as_often_as_they_differ_each_with_a_place_of_its_own() -> (
    None
):
    staged = _staged(
        sides(), found(("missing", 1, 10, 2), ("extra", 3, None, -3)), base=BASE, first=1, ts_us=5
    )
    assert staged.table.column("c0").to_pylist() == [1, 1, 3, 3, 3]
    assert staged.table.column("_op").to_pylist() == [INSERT, INSERT, LEAVE, LEAVE, LEAVE]
    assert staged.table.column("_seq").to_pylist() == [
        BASE + 3,
        BASE + 5,
        BASE + 6,
        BASE + 8,
        BASE + 10,
    ]


def test_columns_that_the_source_has_dropped_are_absent_from_a_repair() -> None:
    staged = _staged(
        sides("id", columns=("id", "v", "dropped")),
        found(("different", 2, 20, 0), ("different", 3, 30, 0)),
        base=BASE,
        first=0,
        ts_us=5,
    )
    assert staged.partial
    assert [staged.table.column(f"p{at}").to_pylist() for at in range(3)] == [
        [True] * 2,
        [True] * 2,
        [False] * 2,
    ]
    assert staged.table.column("_seq").to_pylist() == [BASE + 1, BASE + 3]


def test_rows_are_read_again_until_their_view_is_at_the_cut_and_counted_if_it_never_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {
        "name": "shop",
        "source": {"kind": "live", "host": "nowhere", "user": "u", "password": "p"},
    }
    more = {"tables": {"include": ["d.*"]}, "sink": {"lake_path": tmp_path / "lake"}}
    config = PipelineConfig.model_validate({**document, **more})
    reread = _Reread(Captures(config, MemoryCursorStore(), RunObserver()), "d.t")
    rows = SelectedRows(
        schema(("id", Kind.INT32)), pa.record_batch({"id": pa.array([1, 2], pa.int32())})
    )
    reads: list[Any] = []
    monkeypatch.setattr(_Reread, "_read", lambda *_: reads.pop(0))
    for name in ("recent", "run"):
        monkeypatch.setattr(Captures, name, lambda _captures: None)
    cuts: list[Any] = [None, SimpleNamespace(batch_number=7)]
    monkeypatch.setattr(Captures, "locked", lambda _captures, _work: cuts.pop(0))
    empty = RepairReport(source="shop", table="d.t")

    reads += [([rows], None), ([rows], "a cut that is not the last one now"), ([rows], "a cut")]
    done = reread._range(ALL_ROWS, "id > 0", ["d.t"], empty)
    assert (done.rows_written, done.rows_left, done.rounds, done.batches) == (2, 0, 3, (7,))
    reads += 5 * [([rows], None)]
    left = reread._range(ALL_ROWS, "id > 0", ["d.t"], done)
    assert (left.rows_written, left.rows_left, left.rounds, left.batches) == (2, 2, 8, (7,))

    # A killed one is continued at the first range with rows that are left.
    after: list[Any] = []

    def ranges(*_: object, **how: Any) -> list[Any]:
        done_before = int((how["after"] or "0")[0])
        after.append(done_before)
        return [SimpleNamespace(upto=(str(at),)) for at in range(done_before + 1, 4)]

    monkeypatch.setattr(f"{_Reread.__module__}.plan_ranges", ranges)
    monkeypatch.setattr(f"{_Reread.__module__}.key_layout", lambda *_: "")
    source = SimpleNamespace(reader=lambda: nullcontext(None))
    opened = f"{_Reread.__module__}.SnapshotSource"
    monkeypatch.setattr(opened, lambda *_, **__: nullcontext(source))
    for name in ("_schema", "_targets"):
        monkeypatch.setattr(_Reread, name, lambda *_: None)
    reports: list[RepairReport] = [done, left, left, left, left]
    monkeypatch.setattr(_Reread, "_range", lambda *_: reports.pop(0))
    folder = OperationFolder(config, "20260101T000000-00c0ffee")
    state: Any = SimpleNamespace(cut=None)
    for _ in range(2):
        reread._ranges("id > 0", state, folder)
    assert after == [0, 1]


def test_k28_a_table_that_follows_a_renamed_one_against_the_policy_is_not_compared() -> None:
    def why_not(
        policy: str, origin: tuple[str, str] | None = ("d.t", "d.t"), *, gone: bool = False
    ) -> str:
        config = PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"kind": "live", "host": "nowhere", "user": "u", "password": "p"},
                "tables": {"include": ["d.*"]},
                "targets": [{"tables": ["d.t"], "schema_changes": {"rename_table": policy}}],
                "sink": {"lake_path": "."},
            }
        )
        state = TargetState(
            table="d.t", app_id="a", table_version=3, applied_batch=1, sources=("d.moved",),
            origin=origin,
        )  # fmt: skip
        recorded = RecordedSource(columns=(), key=("id",), gone=gone)
        cut = Cut(
            source="shop", batch_number=1, published_at_us=0, interval=interval_of(1),
            cursor=cursor_at(1, targets={"d.t": state}),
            tables={"d.t": CutTable(
                table_version=3, spec=TargetSpec(key=("id",), sources={"d.moved": recorded})
            )},
        )  # fmt: skip
        return name_is_not_compared(config, "d.t", cut)

    assert why_not("by_name") == (
        "it follows d.moved, which was once named d.t, and not the table that has this name now: "
        "take its snapshot with `cdc-pipeline snapshot shop --table d.t`"
    )
    assert why_not("follow") == why_not("by_name", None) == ""
    assert "tables.exclude in the file leaves it out" in why_not("follow", gone=True)


def test_what_has_no_repair_says_so() -> None:
    assert "in their order" in repairable("changelog", ["missing"])
    assert repairable("soft_delete", ["duplicate"])
    assert repairable("mirror", ["ambiguous"])
    assert repairable("mirror", ["extra"], unread=True)
    assert not repairable("mirror", ["missing", "extra", "different", "duplicate"])


def verified(status: Status = "equal", **more: Any) -> TableVerified:
    return TableVerified(
        target="d.t", sources=("d.t",), mode="mirror", key=("id",), status=status, rounds=1, **more
    )


def test_k17_a_merged_target_is_told_at_the_newest_of_its_cuts() -> None:
    """A repair of one source table is behind what the others were compared at."""

    def part(number: int) -> Any:
        targets = {"d.t": SimpleNamespace(partial=False)}
        cut = SimpleNamespace(batch_number=number, cursor=SimpleNamespace(targets=targets))
        after = SimpleNamespace(cut=cut, position=cursor_at(number).position)
        reading: Any = SimpleNamespace(sides=sides("id"), after=after, unproved=False)
        return RoundsResult(last=(reading, reading))

    unused: Any = None
    verification = _Verification(VerifyContext(unused, VerifyOptions(), *[unused] * 5))
    table: Any = SimpleNamespace(spec=SimpleNamespace(mode="mirror"))
    joined = verification._joined("d.t", table, {}, [part(2), part(9), part(4)])
    assert (joined.cut, joined.place) == (9, cursor_at(9).position)


def test_k13_what_an_added_column_gave_to_the_rows_of_a_changelog_follows_the_columns() -> None:
    column = TargetColumn(name="id", delta_type="int")

    def after(
        before: tuple[ColumnDefault, ...], *steps: Step, **more: Any
    ) -> tuple[ColumnDefault, ...]:
        spec = TargetSpec(mode=more.pop("mode", "changelog"), columns=(column,))
        target = RecordedTarget(table="d.t", app_id="x", spec=spec, schema_steps=steps, **more)
        return column_defaults_after(CutTable(table_version=1, column_defaults=before), target)

    values = (("n", "int", "7"), ("made", "int", "`id` + 1"))
    steps = (
        AddColumn(name="n", delta_type="int"),
        FillColumns(values=values, defaults=("n",), seq="100"),
    )
    (one,) = given = after((), *steps)
    assert one == ColumnDefault(column="n", delta_type="int", value="7", seq="100")
    assert after((), *steps, mode="mirror") == ()
    renamed = after(
        given, RenameColumn(name="n", new_name="m"), WidenColumn(name="m", delta_type="bigint")
    )
    assert renamed == (one.model_copy(update={"column": "m", "delta_type": "bigint"}),)
    assert after(renamed, DropColumn(name="m")) == ()
    assert after(renamed, RemoveRows(op="truncate")) == ()
    assert after(given) == given
    assert after(given, create=True) == ()
    content = RecordedContent(path="p", version=1, app_id="y", column_defaults=renamed)
    assert after(given, content=content) == renamed, "all of it is new"
    assert after(given, content=content.model_copy(update={"keeps_rows": True})) == (
        *given,
        *renamed,
    )
    kept = content.model_copy(update={"keeps_rows": True})
    assert after(given, content=kept, replaces="z") == (*given, *renamed), (
        "as a load of a target that is there"
    )
    assert after(given, replaces="z") == ()
    restarts = {"keeps_rows": True, "restarts": True}
    assert after(given, content=content.model_copy(update=restarts)) == renamed


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ((), 0),
        (("equal", "equal"), 0),
        (("equal", "not_compared"), UNPROVED),
        (("unsettled", "equal"), UNPROVED),
        (("unsettled", "different", "not_compared"), DIFFERENT),
    ],
)
def test_the_exit_code_is_that_of_the_worst_table(statuses: tuple[Status, ...], code: int) -> None:
    tables = {str(number): verified(status) for number, status in enumerate(statuses)}
    assert exit_code(VerifyReport(source="shop", tables=tables)) == code


def test_lines_name_keys_and_what_others_did() -> None:
    one = Difference(kind="different", key={"id": "7", "b": None}, columns=("v",))
    foreign = ExternalChange(
        versions={4: "UPDATE"}, what="changed", restorable=True, differences=(one,)
    )
    lines = lines_of(
        verified("different", counts={"different": 1}, differences=(one,), foreign=foreign)
    )
    assert "changed; versions written by others: 4 (UPDATE)" in lines
    assert "--repair restores it to the last cut" in lines
    assert lines.count("  id=7, b=NULL: different values (v)") == 2
    assert "1 key: different values" in lines


def test_count_and_checksum_tell_apart_what_is_proved_and_what_is_not() -> None:
    def passed(**more: Any) -> list[bool | None]:
        return [check.passed for check in checks_of(verified(**more))]

    assert passed() == [True, True]
    assert passed(status="different", counts={"different": 2}) == [True, False]
    assert passed(status="different", counts={"missing": 2}) == [False, False]
    assert passed(status="different", strays=1) == [False, True]
    assert passed(status="unsettled", unsettled=3) == [None, None]
    assert passed(status="not_compared", reason="suspended") == [None, None]
