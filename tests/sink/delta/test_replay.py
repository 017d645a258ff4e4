"""Rows by the log alone, against Spark's own count of every version, and what a log may lack."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.sink.delta.log import read_commit
from cdc_pipeline.sink.delta.replay import readable_state, row_count
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.spark.session import SparkProvider
from cdc_pipeline.sink.spark.sql import table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# -- against Spark ---------------------------------------------------------------------------------

# What is compared are logs and counts; how Spark comes by them is its own affair, and its quickest
# way does.
QUICK = {
    "sql.codegen.wholeStage": "false",
    "sql.codegen.factoryMode": "NO_CODEGEN",
    "sql.adaptive.enabled": "false",
    "sql.shuffle.partitions": "1",
    "databricks.delta.snapshotPartitions": "1",
}
STATEMENTS = (
    "INSERT INTO {t} SELECT id, id % 7 FROM range(0, 1000, 1, 3)",
    "DELETE FROM {t} WHERE id % 10 = 3",
    "MERGE INTO {t} AS t USING (SELECT id FROM range(900, 1100)) AS s ON t.id = s.id "
    "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 9 "
    "WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, 1)",
    "UPDATE {t} SET note = 5 WHERE id < 20",
    "DELETE FROM {t} WHERE id % 10 = 4",
    "RESTORE TABLE {t} TO VERSION AS OF 3",
    "DELETE FROM {t} WHERE id < 400",
)


@pytest.mark.spark
@pytest.mark.whole
def test_rows_of_every_version_are_those_that_spark_counts(
    tmp_path: Path, sink_provider: SparkProvider
) -> None:
    """With deletion vectors; before, at and after checkpoints; a RESTORE."""
    session = quick_session(sink_provider)
    table = written(session, tmp_path / "t", STATEMENTS, {})
    log = table / "_delta_log"
    assert [file.name[18:20] for file in sorted(log.glob("*.checkpoint.parquet"))] == ["03", "06"]
    assert '"cardinality"' in (log / f"{7:020d}.json").read_text(), "deletes by deletion vectors"
    counted = [table_frame(session, table, version=v).count() for v in range(len(STATEMENTS) + 1)]
    assert counted[0] == 0
    assert len(set(counted)) > 4
    assert [row_count(table, version=v) for v in range(len(STATEMENTS) + 1)] == counted
    assert row_count(table) == counted[-1]


@pytest.mark.whole
@pytest.mark.spark
@pytest.mark.parametrize(
    ("properties", "settings", "checkpoint"),
    [
        pytest.param(
            {
                "delta.checkpoint.writeStatsAsJson": "false",
                "delta.checkpoint.writeStatsAsStruct": "true",
            },
            {"checkpoint.partSize": "2"},
            "*3.checkpoint.0000000001.*.parquet",
        ),
        pytest.param(
            {"delta.checkpointPolicy": "v2"},
            {"checkpointV2.topLevelFileFormat": "json"},
            "*3.checkpoint.*-*.json",
        ),
        (
            {"delta.checkpointPolicy": "v2"},
            {"checkpointV2.topLevelFileFormat": "parquet"},
            "*3.checkpoint.*-*.parquet",
        ),
    ],
    ids=["multi-part, struct statistics", "v2 in JSON", "v2 in Parquet"],
)
def test_every_form_of_checkpoint_gives_the_rows(
    tmp_path: Path,
    sink_provider: SparkProvider,
    properties: Mapping[str, str],
    settings: Mapping[str, str],
    checkpoint: str,
) -> None:
    session = quick_session(sink_provider)
    for name, value in settings.items():
        session.conf.set(f"spark.databricks.delta.{name}", value)
    table = written(session, tmp_path / "t", (*STATEMENTS[:3], STATEMENTS[4]), properties)
    log = table / "_delta_log"
    assert list(log.glob(checkpoint))
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    assert row_count(table, version=2) is None
    rows = table_frame(session, table).count()
    assert 0 < rows < (row_count(table, version=3) or 0)
    assert row_count(table) == rows


def quick_session(sink_provider: SparkProvider) -> SparkSession:
    session = sink_provider.session().newSession()
    for name, value in QUICK.items():
        session.conf.set(f"spark.{name}", value)
    return session


def written(
    session: SparkSession, table: Path, statements: Sequence[str], properties: Mapping[str, str]
) -> Path:
    """A table that is made by `statements`, with a checkpoint at every third version."""
    wanted = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "3", **properties}
    listing = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
    session.sql(
        f"CREATE TABLE {table_at(table)} (id BIGINT, note INT) USING delta "
        f"TBLPROPERTIES ({listing})"
    )
    for statement in statements:
        session.sql(statement.format(t=table_at(table))).collect()
    return table


# -- logs written by hand --------------------------------------------------------------------------


def add(path: str, rows: int | None, **vector: Any) -> dict[str, Any]:
    action: dict[str, Any] = {"path": path, "dataChange": True}
    if rows is not None:
        action["stats"] = json.dumps({"numRecords": rows})
    if vector:
        action["deletionVector"] = {"storageType": "u", "offset": 1, "sizeInBytes": 9, **vector}
    return {"add": action}


def remove(path: str, **vector: Any) -> dict[str, Any]:
    return {"remove": add(path, None, **vector)["add"]}


Commit = Callable[..., None]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "_delta_log").mkdir()
    return tmp_path


@pytest.fixture
def commit(table: Path) -> Commit:
    def write(version: int, *actions: dict[str, Any]) -> None:
        lines = [json.dumps({"commitInfo": {"operation": "WRITE"}}), *map(json.dumps, actions)]
        (table / "_delta_log" / f"{version:020d}.json").write_text("\n".join(lines))

    return write


def write_checkpoint(table: Path, version: int, *adds: dict[str, Any], part: str = "") -> None:
    kind = pa.struct(
        {
            "path": pa.string(),
            "stats": pa.string(),
            "deletionVector": pa.struct(
                {
                    "storageType": pa.string(),
                    "pathOrInlineDv": pa.string(),
                    "offset": pa.int32(),
                    "cardinality": pa.int64(),
                }
            ),
        }
    )
    # another action's row has no file
    rows = pa.array([None, *(action["add"] for action in adds)], kind)
    pq.write_table(
        pa.table({"add": rows}),
        table / "_delta_log" / f"{version:020d}.checkpoint.{part and part + '.'}parquet",
    )


def test_no_table_and_no_such_version_have_no_count(
    tmp_path: Path, table: Path, commit: Commit
) -> None:
    assert row_count(tmp_path / "nowhere") is None
    assert row_count(table) is None
    commit(0, add("a", 5))
    assert row_count(table) == 5
    assert row_count(table, version=1) is None
    assert row_count(table, version=-1) is None


def test_a_file_changes_its_name_in_any_order_within_a_commit(table: Path, commit: Commit) -> None:
    commit(0, add("a", 10), add("b", 10))
    commit(1, add("a", 10, pathOrInlineDv="x", cardinality=3), remove("a"))
    assert row_count(table) == 17
    commit(
        2,
        remove("a", pathOrInlineDv="x"),
        add("a", 10, pathOrInlineDv="y", cardinality=4),
        remove("b"),
    )
    assert row_count(table) == 6


def test_an_add_of_a_file_that_the_checkpoint_has_counts_once(table: Path, commit: Commit) -> None:
    """Statistics that were computed again: the same file, added again."""
    for version in range(3):
        commit(version, add(f"f{version}", 10))
    vector = {"pathOrInlineDv": "x", "cardinality": 2}
    write_checkpoint(
        table, 2, *(add(f"f{version}", 10) for version in range(2)), add("f2", 10, **vector)
    )
    commit(3, add("f0", 10), add("f2", 10, **vector))
    assert row_count(table) == 28
    commit(4, remove("f2", pathOrInlineDv="x"), remove("f1"))
    assert row_count(table) == 10


def test_without_statistics_there_is_no_count(table: Path, commit: Commit) -> None:
    commit(0, add("a", 5), add("b", None))
    assert row_count(table) is None
    write_checkpoint(table, 0, add("a", 5), add("b", None))
    assert row_count(table) is None
    commit(1, remove("b"))
    assert row_count(table) == 5, "the file that had none is gone"


def test_statistics_in_another_order_are_read_as_the_json_that_they_are(
    table: Path, commit: Commit
) -> None:
    odd = {
        "add": {
            "path": "a",
            "stats": json.dumps({"minValues": {"numRecords": 77}, "numRecords": 5}),
        }
    }
    commit(0, odd)
    assert row_count(table) == 5
    write_checkpoint(table, 0, odd, add("b", 1))
    assert row_count(table) == 6


def test_k20_a_line_of_a_log_ends_where_json_ends_it(table: Path) -> None:
    """K20: Delta writes U+2028, U+0085 and others as they are, in names and as the least value of a
    text: a table whose rows hold one was suspended for a damaged log."""
    ends = "a\u2028b\u2029c\x85d"
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "operation": "WRITE",
                "userMetadata": json.dumps({"cdc_app_id": ends}, ensure_ascii=False),
            }
        },
        {
            "add": {
                "path": "a",
                "stats": json.dumps(
                    {"numRecords": 5, "minValues": {ends: ends}}, ensure_ascii=False
                ),
            }
        },
    ]
    text = "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions)
    (table / "_delta_log" / f"{0:020d}.json").write_text(text, encoding="utf-8")
    commit = read_commit(table, 0)
    assert commit is not None
    assert commit.user_metadata == {"cdc_app_id": ends}
    assert row_count(table) == 5


def test_a_log_that_does_not_reach_back_has_no_count(table: Path, commit: Commit) -> None:
    for version in range(3):
        commit(version, add(f"f{version}", 10))
    (table / "_delta_log" / f"{1:020d}.json").unlink()
    assert row_count(table, version=0) == 10
    assert row_count(table) is None


def test_a_checkpoint_that_lacks_a_part_is_passed_over(table: Path, commit: Commit) -> None:
    for version in range(3):
        commit(version, add(f"f{version}", 10))
    write_checkpoint(table, 2, add("f0", 10), part="0000000001.0000000002")
    assert row_count(table) == 30
    write_checkpoint(table, 2, add("f1", 10), add("f2", 10), part="0000000002.0000000002")
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    assert row_count(table) == 30


@pytest.mark.parametrize("name", [f"{0:020d}.json", f"{1:020d}.checkpoint.parquet"])
def test_a_damaged_file_of_the_log_is_named(table: Path, commit: Commit, name: str) -> None:
    commit(0, add("a", 5))
    commit(1, add("b", 5))
    (table / "_delta_log" / name).write_bytes(b'{"add": \xff')
    with pytest.raises(LakeStateError, match=name):
        row_count(table)


def test_a_struct_of_nulls_is_no_action(table: Path, commit: Commit) -> None:
    """As some writers leave it in a checkpoint's row of another action."""
    commit(0, {"metaData": {"id": "i"}}, {"protocol": {"minReaderVersion": 1}}, add("a", 5))
    kinds = {
        "add": {"path": "a", "stats": '{"numRecords": 5}'},
        "metaData": {"id": "i", "format": {"provider": "parquet"}},
        "protocol": {"minReaderVersion": 1},
        "domainMetadata": {"domain": "d"},
        "sidecar": {"path": None},
    }
    nothing: dict[str, Any] = {kind: dict.fromkeys(parts) for kind, parts in kinds.items()}
    nothing["metaData"]["format"] = {"provider": None}
    rows = [nothing | {kind: kinds[kind]} for kind in kinds]
    file = table / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    state = readable_state(table)
    assert (state.metadata, state.protocol) == (kinds["metaData"], kinds["protocol"])
    assert state.domains == {"d": kinds["domainMetadata"]}
    assert list(state.adds.values()) == [kinds["add"]]
    assert state.rows == 5
