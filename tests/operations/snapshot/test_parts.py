"""Parts of loads and repairs that need no Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_pipeline.config.pipeline_config import (
    GtidConfig,
    PipelineConfig,
    PositionConfig,
    TimeConfig,
)
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import ConfigError, LockError, SnapshotError
from cdc_pipeline.lake.long_operations import (
    Operation,
    OperationFolder,
    Progress,
    TableProgress,
    operation_ids,
    operations_of,
)
from cdc_pipeline.lake.paths import put_if_absent
from cdc_pipeline.lake.records import Cut, CutTable, Interval
from cdc_pipeline.operations.backfill.lake import as_text
from cdc_pipeline.operations.snapshot.side import side_config
from cdc_pipeline.operations.snapshot.swap import given_up
from cdc_pipeline.operations.status import _need
from cdc_pipeline.operations.verify.read import conditions
from cdc_pipeline.position.cursor import CursorState, Suspension, TargetState
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.bounds import start_of
from cdc_pipeline.run.plan.needs_snapshot import choose, needing, suspended_still
from cdc_pipeline.schema.target_spec import RecordedSource, TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.source.rows.table_reader import TableReader
from tests.servers import Server
from tests.source.rows.helpers import catalog_schema, selected
from tests.support.live_source import live_config

KNOWN = ["shop.a", "shop.b", "shop.c", "shop.eu_orders", "shop.us_orders", "shop.tmp_x"]


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    shards = {
        "tables": ["shop.*_orders"],
        "name": "shop.orders",
        "shard_column": "region",
        "shard_value": "{table}",
    }
    return PipelineConfig.model_validate(
        {
            "name": "bank",
            "source": {"kind": "live", "host": "nowhere", "user": "u", "password": "p"},
            "tables": {"include": ["shop.*"], "exclude": ["shop.tmp_*"]},
            "targets": [
                shards,
                {"tables": ["shop.a"]},
                {"tables": ["shop.a"], "mode": "changelog", "name": "{schema}.{table}_log"},
            ],
            "sink": {"lake_path": tmp_path / "lake"},
        }
    )


def cursor(**targets: TargetState) -> CursorState:
    states = {state.table: state for state in targets.values()}
    return CursorState(
        source="bank",
        batch_number=3,
        flavor="mysql",
        server_id=1,
        journal="binlog.000004",
        offset=50,
        targets=states,
    )


def cut(**targets: TargetState) -> Cut:
    interval = Interval(start=Position("binlog.000004"), end=Position("binlog.000004", 50))
    return Cut(
        source="bank",
        batch_number=3,
        published_at_us=0,
        interval=interval,
        cursor=cursor(**targets),
    )


def state(table: str, **more: object) -> TargetState:
    fields = {
        "table": table,
        "app_id": f"app of {table}",
        "table_version": 5,
        "applied_batch": 3,
        **more,
    }
    return TargetState.model_validate(fields)


def test_k19_what_needs_a_load(config: PipelineConfig) -> None:
    held = Suspension(
        batch_number=2, error="LakeStateError", what="gone", journal="binlog.000004", offset=40
    )
    there = cut(
        a=state("shop.a"),
        log=state("shop.a_log", sources=("shop.a",)),
        b=state("shop.b", suspended=held),
        c=state("shop.c", suspended=held.model_copy(update={"needs_snapshot": True})),
        orders=state("shop.orders", sources=("shop.eu_orders",)),
    )
    assert needing(config, there, KNOWN).keys() == {"shop.c", "shop.orders"}
    assert suspended_still(there.cursor) == (
        "suspended tables that get a snapshot only by name (1): shop.b "
        "(`cdc-pipeline snapshot bank --table shop.b`)"
    )
    assert suspended_still(cursor(a=state("shop.a"))) == suspended_still(None) == ""
    partial = cut(a=state("shop.a", partial=True))
    assert needing(config, partial, KNOWN).keys() == {
        "shop.a",
        "shop.a_log",
        "shop.b",
        "shop.c",
        "shop.orders",
    }


def test_k28_a_target_that_follows_a_renamed_table_is_loaded_unless_the_policy_wants_it_so(
    config: PipelineConfig,
) -> None:
    moved = cut(a=state("shop.a", partial=True, origin=("shop.a", "shop.a"), sources=("shop.z",)))
    known = [*KNOWN, "shop.z"]
    needed = needing(config, moved, known)
    assert needed["shop.a"].startswith("it follows shop.z, which was once named shop.a")
    assert needed["shop.z"] == "it is not in the lake"
    assert choose(config, moved, known, ["shop.a"]).targets == ("shop.a", "shop.a_log")
    following = config.model_copy(
        update={"schema_changes": SchemaChangePolicy(rename_table="follow")}
    )
    assert "shop.a" not in needing(following, moved, KNOWN)
    assert "shop.z" not in needing(following, moved, known), (
        "it is followed, under the name that it had"
    )
    for asked in ("shop.a", "shop.z"):
        with pytest.raises(SnapshotError, match=r"renamed to shop\.z"):
            choose(following, moved, known, [asked])


def test_k28_a_name_without_a_table_asks_for_no_load(config: PipelineConfig) -> None:
    """Its table was renamed or dropped: no load could bring rows."""
    columns = (TargetColumn(name="id", delta_type="int"),)
    of = RecordedSource(columns=columns, key=("id",))
    table = CutTable(
        table_version=5, spec=TargetSpec(columns=columns, key=("id",), sources={"shop.b": of})
    )
    there = cut(b=state("shop.b", partial=True)).model_copy(update={"tables": {"shop.b": table}})
    assert _need(config, "shop.b", there)[1] == "cdc-pipeline snapshot bank --table shop.b"
    gone_spec = table.spec.model_copy(
        update={"sources": {"shop.b": of.model_copy(update={"gone": True})}}
    )
    gone = table.model_copy(update={"spec": gone_spec})
    assert _need(config, "shop.b", there.model_copy(update={"tables": {"shop.b": gone}})) == (
        "",
        "",
    )


def test_k28_a_load_ends_the_following_of_its_tables_under_other_names(
    config: PipelineConfig,
) -> None:
    columns = (TargetColumn(name="id", delta_type="int"),)
    table = CutTable(
        table_version=5,
        spec=TargetSpec(
            columns=columns,
            key=("id",),
            sources={"shop.a": RecordedSource(columns=columns, key=("id",))},
        ),
    )
    there = cut(b=state("shop.b", origin=("shop.b", "shop.b"), sources=("shop.a",)))
    there = there.model_copy(update={"tables": {"shop.b": table}})
    (left,) = given_up(config, there, ["shop.a"], {"shop.a"})
    assert (left.name, list(left.spec.sources), left.spec.sources["shop.b"].gone) == (
        "shop.b",
        ["shop.b"],
        True,
    )
    assert given_up(config, there, ["shop.b"], {"shop.a"}) == []
    assert given_up(config, there, ["shop.c"], {"shop.c"}) == []


def test_k28_a_table_that_is_renamed_leaves_its_load(config: PipelineConfig) -> None:
    """The rows that were read of it are not those of the table that has its name now."""
    rule = config.targets[0].model_copy(
        update={"schema_changes": SchemaChangePolicy(drop_table="apply")}
    )
    config = config.model_copy(update={"targets": (rule, *config.targets[1:])})
    made = Operation(
        operation_id="20260101T000000-00c0ffee", source="bank",
        sources=("shop.a",), targets=("shop.a",), cursor=cursor(),
        time_us=7, started_at_us=8,
    )  # fmt: skip
    folder = OperationFolder(config, made.operation_id)
    side = side_config(config, folder, made)
    assert side.schema_changes.rename_table == "keep"
    assert side.targets[0].schema_changes == SchemaChangePolicy(
        drop_table="apply", rename_table="keep"
    )
    assert side.targets[1].schema_changes == SchemaChangePolicy(rename_table="keep")
    rebuilt = side_config(config, folder, made.model_copy(update={"kind": "rebuild"}))
    assert rebuilt.schema_changes.rename_table == "by_name"


def test_k17_a_load_does_not_remove_rows_of_a_shard_that_is_gone(config: PipelineConfig) -> None:
    there = cut(
        orders=state("shop.orders", sources=("shop.as_orders", "shop.eu_orders", "shop.us_orders"))
    )
    with pytest.raises(SnapshotError, match=r"holds rows of shop\.as_orders") as refused:
        choose(config, there, KNOWN, ["shop.us_orders"])
    assert "drop_table: apply" in str(refused.value)
    rules = config.model_copy(update={"schema_changes": SchemaChangePolicy(drop_table="apply")})
    assert choose(rules, there, KNOWN, ["shop.us_orders"]).sources == (
        "shop.eu_orders",
        "shop.us_orders",
    )
    assert choose(config, there, [*KNOWN, "shop.as_orders"], ["shop.orders"]).targets == (
        "shop.orders",
    )


def test_tables_that_share_targets_are_loaded_together(config: PipelineConfig) -> None:
    whole = choose(config, None, KNOWN, ["shop.us_orders"])
    assert (whole.sources, whole.targets) == (
        ("shop.eu_orders", "shop.us_orders"),
        ("shop.orders",),
    )
    assert choose(config, None, KNOWN, ["shop.a_log"]).targets == ("shop.a", "shop.a_log")
    assert choose(config, None, KNOWN, None).sources == (
        "shop.a",
        "shop.b",
        "shop.c",
        "shop.eu_orders",
        "shop.us_orders",
    )
    for unknown in ("shop.tmp_x", "shop.none"):
        with pytest.raises(ConfigError, match=unknown):
            choose(config, None, KNOWN, ["shop.a", unknown])


def test_k17_progress_counts_with_the_cut_of_its_batch(config: PipelineConfig) -> None:
    made = Operation(
        operation_id="20260101T000000-00c0ffee",
        source="bank",
        sources=("shop.a", "shop.b"),
        targets=("shop.a", "shop.a_log", "shop.b"),
        cursor=cursor(),
        time_us=7,
        rows_estimated={"shop.a": 100, "shop.b": 100},
        started_at_us=8,
    )
    folder = OperationFolder(config, made.operation_id)
    assert folder.read() is None
    folder.create(made)
    assert (folder.read(), operation_ids(config)) == (made, [made.operation_id])
    first = Progress(tables={"shop.a": TableProgress(rows=50, chunks=1, after=("17",))})
    last = Progress(tables={"shop.a": TableProgress(rows=100, chunks=2, is_done=True)})
    folder.write_progress(2, first)
    folder.write_progress(3, last)
    assert folder.read_progress() == Progress()
    put_if_absent(folder.paths.cut(1), "{}")
    put_if_absent(folder.paths.cut(2), "{}")
    assert folder.read_progress() == first
    # Recorded, batch 3 gets its cut; else that number is another's.
    put_if_absent(folder.paths.batch(3), "{}")
    folder.discard_unrecorded()
    folder.paths.batch(3).rename(folder.paths.batch(4))
    put_if_absent(folder.paths.cut(3), "{}")
    assert folder.read_progress() == last
    folder.paths.cut(3).unlink()
    folder.discard_unrecorded()
    put_if_absent(folder.paths.cut(3), "{}")
    assert folder.read_progress() == first
    (told,) = operations_of(config, None)
    assert (told.rows, told.chunks, told.percent, told.is_running) == (50, 1, 25.0, False)
    with folder.locked():
        assert operations_of(config, None)[0].is_running
        with pytest.raises(LockError, match="under way in another process"), folder.locked():
            pass
    # Its tables are in the main lake: what is left of it is no load any more.
    done = cut(
        **{f"t{at}": state(name, app_id=made.app_id(name)) for at, name in enumerate(made.targets)}
    )
    assert operations_of(config, done) == []
    folder.remove()
    assert (operation_ids(config), folder.lake.exists()) == ([], False)


def test_what_was_asked_is_in_the_command_that_continues_an_operation(
    config: PipelineConfig,
) -> None:
    made = Operation(
        operation_id="20260101T000000-00c0ffee",
        kind="backfill",
        source="bank",
        sources=("shop.a", "shop.b b"),
        asked={
            "into": "/l",
            "from": as_text(TimeConfig(time=datetime(2026, 1, 31, 8, tzinfo=UTC))),
            "to": as_text(PositionConfig(journal="binlog.000004", offset=50)),
        },
        archive="/old journals",
        cursor=cursor(),
    )
    tables = "bank --table shop.a --table 'shop.b b'"
    end, archive = "--until binlog.000004:50", "--archive '/old journals'"
    begin = "2026-01-31T08:00:00Z"
    assert made.command == (
        f"cdc-pipeline backfill {tables} --into /l --from {begin} {end} {archive}"
    )
    assert as_text(start_of(begin)) == made.asked["from"], "the same range"
    rebuilt = made.model_copy(update={"kind": "rebuild", "asked": {"from": as_text("earliest")}})
    assert rebuilt.command == (
        f"cdc-pipeline backfill {tables} --rebuild --from earliest {archive}"
    )
    transactions = {"from": as_text(GtidConfig(gtid_set="u:1-3"))}
    by_gtid = rebuilt.model_copy(update={"asked": transactions, "archive": ""})
    assert by_gtid.command.endswith("--rebuild --from u:1-3")


def test_keys_in_sql_find_their_rows(server: Server, fresh_database: str) -> None:
    """Each value of a key, as the decoder gives it, is written so that the server finds exactly its
    row."""
    server.execute_all(
        f"USE `{fresh_database}`",
        "CREATE TABLE t (i BIGINT UNSIGNED, d DECIMAL(10,3), v VARCHAR(9) CHARACTER SET latin1, b "
        "VARBINARY(5), e ENUM('x','y'), n DATE, m DATETIME(6), s TIMESTAMP(3) NOT NULL, c TIME(2), "
        "o BIT(9), y YEAR, z INT, PRIMARY KEY (i, d, v, b, e, n, m, s, c, o, y))",
        "INSERT INTO t VALUES (18446744073709551615, -1.5, 'a''é\\\\', x'00ff', 'y', '2024-02-29', "
        "'2024-01-01 10:00:00.000001', '2024-01-01 10:00:00.5', '-100:00:00.25', 257, 1999, 1),(2, "
        "0, '', '', 'x', '1000-01-01', '9999-12-31 23:59:59', '1970-01-01 00:00:01', '0:0:0', 0, "
        "2155, 2),(2, 0, 'b', '', 'x', '1000-01-01', '9999-12-31 23:59:59', '1970-01-01 00:00:01', "
        "'0:0:0', 0, 2155, 3)",
    )
    schema = catalog_schema(server, fresh_database, "t")

    def condition(keys: pa.Table) -> str:
        (found,) = conditions(schema, schema.key_names, keys.columns)
        return found

    with TableReader(live_config(server)) as reader:
        rows, invalid = selected(reader, schema)
        assert (rows.num_rows, invalid) == (3, [])
        keys = pa.Table.from_batches([rows.select(list(schema.key_names))])
        for at in range(3):
            found, _ = selected(reader, schema, where=condition(keys.slice(at, 1)))
            assert found.column("z").to_pylist() == rows.slice(at, 1).column("z").to_pylist()
        found, _ = selected(reader, schema, where=condition(keys))
        assert found.num_rows == 3
