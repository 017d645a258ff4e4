"""Renamed, shaped, masked, filtered and merged targets on real servers, all rules in one
pipeline."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import ConfigError, TargetSuspendedError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.schema.target_spec import RecordedShape, TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.modes.shape import check_expressions
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.xa_session import XaSession

pytestmark = [pytest.mark.spark]

SALT = "a salt of the tests, long enough"
SECRETS = ("ann@", "bob@", "eve@", "555-01", "a private note", "top secret", "a hidden fax")

TABLES = (
    """CREATE TABLE person (id INT PRIMARY KEY, email VARCHAR(60), phone VARCHAR(20), note TEXT, secret VARCHAR(40),
       fax VARCHAR(40), status VARCHAR(10) NOT NULL, amount DECIMAL(10,2), born DATETIME(3),
       level SMALLINT UNSIGNED)""",  # noqa: E501
    "CREATE TABLE login (email VARCHAR(60), at DATETIME, PRIMARY KEY (email))",
    "CREATE TABLE orders_1 (id BIGINT PRIMARY KEY, email VARCHAR(60), price DECIMAL(8,2))",
    "CREATE TABLE orders_2 (id BIGINT PRIMARY KEY, email VARCHAR(60), price DECIMAL(8,2))",
    "CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(20))",
)
PERSON = ["id", "phone", "note", "status", "amount", "born", "level", "cents", "born_on"]


def rules(database: str) -> list[dict[str, Any]]:
    hashed = {"hash": {"salt": SALT}}
    person = {
        "tables": [f"{database}.person"],
        "columns": {"exclude": ["fax"]},
        "masks": {
            "EMAIL": hashed,
            "phone": {"truncate": 3},
            "note": {"fixed": "x"},
            "secret": "drop",
        },
        "computed": {
            "cents": {"expression": "CAST(amount * 100 AS BIGINT)", "type": "bigint"},
            "born_on": {"expression": "date(born)", "type": "date"},
        },
        "filter": "status <> 'draft'",
        "types": {"level": "string", "amount": "decimal(20,4)"},
    }
    return [
        {**person, "name": "crm.people", "partition_by": ["born_on"]},
        {"tables": [f"{database}.login"], "masks": {"email": hashed}, "name": "crm.{table}"},
        {
            "tables": [f"{database}.orders_*"],
            "name": "shop.orders",
            "shard_column": "shard",
            "shard_value": "{table}",
            "masks": {"email": hashed},
            "cluster_by": ["shard", "id"],
        },
        {**person, "name": "crm.changes", "mode": "changelog"},
        {**person, "name": "crm.versions", "mode": "history"},
    ]


def digest(text: str | None) -> str | None:
    return (
        None if text is None else hmac.new(SALT.encode(), text.encode(), hashlib.sha256).hexdigest()
    )


@pytest.mark.whole
def test_k14_every_rule_in_one_pipeline(
    server: Server,
    fresh_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Rename, masks, excluded and computed columns, a filter, types, a hashed key, shards,
    partitions and clusters; with rows that leave and enter the filter, key updates, and an XA
    transaction that stays prepared between two runs. What is masked is nowhere in the lake, while
    the batch is on its way or afterwards, nor in what a run says."""
    db, lake = fresh_database, tmp_path / "lake"
    caplog.set_level(logging.INFO)
    config = make_config(live(server), include=[f"{db}.*"], start=here(server), targets=rules(db))
    run = server.execute
    for statement in TABLES:
        run(statement.replace("CREATE TABLE ", f"CREATE TABLE `{db}`.", 1))
    values = [
        (
            1,
            "ann@x.org",
            "555-0101",
            "a private note",
            "top secret",
            "a hidden fax",
            "open",
            "1.50",
            "1990-05-06",
            7,
        ),
        (
            2,
            "bob@x.org",
            "555-0102",
            None,
            "top secret",
            None,
            "draft",
            "-0.05",
            "1991-01-02 03:04:05.678",
            65535,
        ),
        (
            3,
            None,
            None,
            "a private note",
            None,
            "a hidden fax",
            "open",
            None,
            "1990-05-06 10:00:00",
            None,
        ),
        (4, "eve@x.org", "555-0104", "", "", "", "draft", "7", "1992-01-01", 0),
    ]
    for row in values:
        run(f"INSERT INTO `{db}`.person VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)", row)
    run(f"INSERT INTO `{db}`.login VALUES ('ann@x.org', '2020-01-01'), ('bob@x.org', '2020-01-02')")
    run(f"INSERT INTO `{db}`.orders_1 VALUES (1, 'ann@x.org', 10.5), (2, 'bob@x.org', 3)")
    run(f"INSERT INTO `{db}`.orders_2 VALUES (1, 'eve@x.org', 99.99)")
    run(f"INSERT INTO `{db}`.plain VALUES (1, 'as it is')")
    prepared = XaSession(server, db, "'masked'").run(
        f"INSERT INTO `{db}`.person VALUES (9, 'eve@y.org', '555-0199', 'a private note', 'top "
        "secret', 'a hidden fax', 'open', 5, '2000-01-01', 1)",
        f"UPDATE `{db}`.login SET email = 'eve@y.org' WHERE email = 'bob@x.org'",
    )
    prepared.prepare()
    cursors = MemoryCursorStore()
    told: list[str] = []

    def watch(point: str) -> None:
        if point in ("before_record", "before_cut", "before_cursor"):
            told.append(point)
            assert not leaks(lake), point

    with listening(watch):
        first = capture(config, cursors=cursors)
    assert list((lake / "_cdc" / "bank" / "xa").rglob("*.arrow"))
    assert "before_record" in told
    assert_as_configured(server, db, spark, lake)

    # enters the filter
    run(f"UPDATE `{db}`.person SET status = 'open', phone = '555-0177' WHERE id = 2")
    run(f"UPDATE `{db}`.person SET status = 'draft' WHERE id = 1")  # leaves it
    # leaves it under another key
    run(f"UPDATE `{db}`.person SET id = 30, status = 'draft' WHERE id = 3")
    # enters under another key
    run(f"UPDATE `{db}`.person SET id = 40, status = 'new' WHERE id = 4")
    run(f"UPDATE `{db}`.orders_1 SET id = 7 WHERE id = 1")
    run(f"DELETE FROM `{db}`.orders_2 WHERE id = 1")
    run(f"INSERT INTO `{db}`.orders_2 VALUES (2, 'bob@x.org', 4)")
    prepared.commit()
    with listening(watch):
        second = capture(config, cursors=cursors)
    assert_as_configured(server, db, spark, lake)
    changes = lake_rows(
        spark, lake, "crm", "changes", ["_cdc_seq", "_cdc_op", "id", "cents", "_cdc_before"]
    )
    assert [
        (op, id_, cents, before and (before["id"], before["cents"]))
        for _, op, id_, cents, before in changes
    ] == [
        ("insert", 1, 150, None),
        ("insert", 3, None, None),
        ("insert", 2, -5, None),
        ("delete", 1, 150, (1, 150)),
        ("delete", 3, None, (3, None)),
        ("insert", 40, 700, None),
        ("insert", 9, 500, None),
    ]
    versions = lake_rows(spark, lake, "crm", "versions", ["id", "cents", "__END_AT"])
    assert sorted((id_, end is None) for id_, _, end in versions) == [
        (1, False), (2, True), (3, False), (9, True), (40, True),
    ]  # fmt: skip
    assert not list((lake / "_cdc" / "bank" / "xa").rglob("*.arrow"))
    assert not leaks(lake)
    said = caplog.text + first.model_dump_json() + second.model_dump_json()
    assert [secret for secret in (*SECRETS, SALT) if secret in said] == []

    if server.flavor == "mariadb":
        return  # what follows reads statements, which test_schema_changes.py shows on both
    # Columns are added: a target that takes them has them, a shard gets them with its own
    # statement.
    run(f"ALTER TABLE `{db}`.person ADD COLUMN vip INT NOT NULL DEFAULT 3")
    run(f"ALTER TABLE `{db}`.orders_1 ADD COLUMN extra INT")
    run(f"UPDATE `{db}`.person SET vip = 4 WHERE id = 2")
    run(f"UPDATE `{db}`.orders_1 SET extra = 5 WHERE id = 2")
    run(f"ALTER TABLE `{db}`.orders_2 ADD COLUMN extra INT")
    run(f"INSERT INTO `{db}`.orders_2 VALUES (8, NULL, 1, 6)")
    capture(config, cursors=cursors)
    assert_as_configured(server, db, spark, lake, vip=True)
    assert lake_rows(spark, lake, "shop", "orders", ["shard", "id", "extra"]) == sorted(
        [
            (table, *row)
            for table in ("orders_1", "orders_2")
            for row in server_rows(server, db, table, ["id", "extra"])
        ],
        key=repr,
    )
    run(f"ALTER TABLE `{db}`.person CHANGE secret public_one VARCHAR(40)")
    run(f"UPDATE `{db}`.person SET status = 'late' WHERE id = 2")
    run(f"INSERT INTO `{db}`.plain VALUES (2, 'goes on')")
    with pytest.raises(TargetSuspendedError, match=r"targets\.0\.masks\.secret"):
        capture(config, cursors=cursors)
    assert not leaks(lake)
    assert lake_rows(spark, lake, db, "plain", ["id", "v"]) == server_rows(
        server, db, "plain", ["id", "v"]
    )

    changed = [dict(rule) for rule in rules(db)]
    for at in (0, 3, 4):
        changed[at]["filter"] = "status = 'open'"
    changed[1]["masks"] = {"email": {"hash": {"salt": "another salt, as long as the first"}}}
    other = make_config(live(server), include=[f"{db}.*"], targets=changed)
    with pytest.raises(ConfigError) as found:
        plan(other, cursors=cursors)
    assert "targets.0.filter" in str(found.value)
    assert "targets.1.masks" in str(found.value)
    with pytest.raises(ConfigError, match=r"targets\.0\.filter"):
        capture(other, cursors=cursors)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"filter": "rand() > 0.5"}, "not deterministic"),
        ({"filter": "id IN (SELECT 1)"}, "query"),
        ({"filter": "no_such_function(id) > 1"}, "no_such_function"),
        ({"filter": "other > 1"}, "other"),
        ({"filter": "map(id, id)"}, "DATATYPE_MISMATCH"),
        ({"computed": [{"name": "x", "delta_type": "date", "expression": "id > 1"}]}, "(?i)cast"),
        (
            {
                "filter": "id > 1",
                "computed": [{"name": "x", "delta_type": "string", "expression": "id -- a remark"}],
            },
            "",
        ),
    ],
)
def test_k14_spark_judges_expressions_too(spark: Any, settings: dict[str, Any], said: str) -> None:
    """What the reading of the text lets pass is judged by Spark before the table is created."""
    computed = [
        TargetColumn(name=c["name"], delta_type=c["delta_type"])
        for c in settings.get("computed", [])
    ]
    target = RecordedTarget(
        table="a.b",
        app_id="x",
        spec=TargetSpec(
            columns=(TargetColumn(name="id", delta_type="int"), *computed),
            key=("id",),
            shape=RecordedShape.model_validate(settings),
        ),
    )
    if not said:
        check_expressions(spark, target)
        return
    with pytest.raises(ConfigError, match="cannot be used") as found:
        check_expressions(spark, target)
    assert re.search(said, str(found.value.got)), found.value.got


def assert_as_configured(
    server: Server, db: str, spark: Any, lake: Path, *, vip: bool = False
) -> None:
    """Every target equals a SELECT of the server; hashes are made of its values here."""
    expressions = (
        "id, LEFT(phone, 3), 'x', status, CAST(amount AS DECIMAL(20,4)), born, CAST(level AS "
        "CHAR), CAST(amount * 100 AS SIGNED), DATE(born)"
    ) + (", vip" if vip else "")
    columns = PERSON + (["vip"] if vip else [])
    found = lake_rows(spark, lake, "crm", "people", ["email", *columns])
    rows = server.query(f"SELECT email, {expressions} FROM `{db}`.person WHERE status <> 'draft'")
    assert found == sorted(((digest(row[0]), *map(plain, row[1:])) for row in rows), key=repr)
    log = read_table_log(lake / "crm" / "people")
    assert log is not None
    assert {"secret", "fax"}.isdisjoint(log.columns)

    rows = server.query(f"SELECT email, at FROM `{db}`.login")
    assert lake_rows(spark, lake, "crm", "login", ["email", "at"]) == sorted(
        ((digest(email), at) for email, at in rows), key=repr
    )
    orders = [
        (table, id_, digest(email), plain(price))
        for table in ("orders_1", "orders_2")
        for id_, email, price in server.query(f"SELECT id, email, price FROM `{db}`.{table}")
    ]
    assert lake_rows(spark, lake, "shop", "orders", ["shard", "id", "email", "price"]) == sorted(
        orders, key=repr
    )
    assert lake_rows(spark, lake, db, "plain", ["id", "v"]) == server_rows(
        server, db, "plain", ["id", "v"]
    )
    assert not (lake / db / "person").exists()


def plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def leaks(lake: Path) -> list[tuple[str, str]]:
    """(secret, file) for every secret that any file of the lake holds, packed or not."""
    found = []
    for file in lake.rglob("*"):
        if file.is_file():
            for text in contents(file):
                found += [
                    (secret, str(file)) for secret in (*SECRETS, SALT) if secret.encode() in text
                ]
    return found


def contents(file: Path) -> Iterator[bytes]:
    yield file.read_bytes()
    try:
        if file.suffix == ".parquet":
            yield json.dumps(pq.read_table(file).to_pylist(), default=str).encode()
        elif file.suffix == ".arrow":
            with pa.ipc.open_stream(file.read_bytes()) as stream:
                yield json.dumps(stream.read_all().to_pylist(), default=str).encode()
    except (pa.ArrowInvalid, OSError):
        assert file.name.startswith((".", "_")) or file.stat().st_size == 0, file  # being written
