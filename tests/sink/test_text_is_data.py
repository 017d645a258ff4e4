"""K20 in the sink: keys, values, names and defaults of the source stand in SQL, and are data
there."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_pipeline import read
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig, SparkConfig
from cdc_pipeline.config.spark_config import SQL_SETTINGS
from cdc_pipeline.errors import CutNotFoundError
from cdc_pipeline.lake.records import Cut, CutTable
from cdc_pipeline.schema.evolution.steps import AddColumn, FillColumns
from cdc_pipeline.schema.target_spec import RecordedShape
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.read import view_statements
from cdc_pipeline.sink.spark import merge_settings
from cdc_pipeline.sink.spark.session import SparkProvider, new_session, session_settings
from cdc_pipeline.text.spark_sql import text_literal
from cdc_pipeline.text.table_names import quoted
from tests.support.delta_reader import newest_rows
from tests.support.sink_values import (
    Change,
    column,
    cursor_at,
    decoded,
    delete,
    head_of,
    insert,
    interval_of,
    new_target,
    table_schema,
    update,
)

HOME = "${env:HOME}"
ODD = [
    HOME, "${spark.app.name}", "${system:user.name}", "$", "{c}", "'", '"', "`x`", "\\", "\\'",
    "\\u0041", "\\%", "%",
    "_", "a\nb", "a\0b", "a\u2028b\x85c",
    "\x1b[31m", "\u202eb", "-- x", "/* x */", "😀", "größe", "\xa0", ":v", "?", "''", "r'x'",
]  # fmt: skip


def test_k20_a_literal_holds_no_character_of_a_second_language() -> None:
    """K20: whoever reads the text before Spark's parser (variable substitution, a template, a
    search for names in backticks) finds nothing to read, whatever the value is."""
    for text in ODD:
        literal = text_literal(text)
        assert not set(literal[1:-1]) & set("'\"`${}\n\0\x1b\u202e\xa0"), literal
        assert re.sub(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}", "", literal).count("\\") == 0
    assert text_literal("plain größe 1.5%") == "'plain größe 1.5%'"


@pytest.mark.parametrize(
    "name",
    [
        "spark.sql.variable.substitute", "spark.sql.parser.escapedStringLiterals",
        "spark.sql.ansi.enabled",
        "spark.sql.session.timeZone", "spark.sql.caseSensitive",
        "spark.sql.legacy.castComplexTypesToString.enabled",
        "spark.sql.files.ignoreCorruptFiles", "spark.databricks.delta.write.txnVersion",
    ],
)  # fmt: skip
def test_k20_settings_that_change_what_a_text_means_are_refused_by_name(name: str) -> None:
    """K20: a file cannot set them; everything else stays possible."""
    with pytest.raises(ValidationError, match="cdc_pipeline sets it in every session") as refused:
        SparkConfig(settings={name: "true"})
    assert refused.value.errors()[0]["loc"][:2] == ("settings", name)
    SparkConfig(
        settings={"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "3"}
    )


def test_k20_our_settings_win_over_every_other() -> None:
    """K20: over a file's (were it not refused), and over a machine's defaults."""
    chosen = SparkConfig.model_construct(
        settings={"spark.sql.variable.substitute": "true", "spark.x": "y"}
    )
    made = session_settings(chosen, warehouse="w")
    assert made["spark.sql.variable.substitute"] == "false"
    assert made["spark.x"] == "y"
    found: dict[str, str] = {}

    class Session:
        conf = SimpleNamespace(set=found.__setitem__)
        sparkContext = SimpleNamespace(setLocalProperty=lambda *_: None)  # noqa: N815 - Spark's

        def newSession(self) -> Session:  # noqa: N802 - Spark's name
            return self

    new_session(cast("Any", Session()))
    assert found == dict(SQL_SETTINGS)


@pytest.mark.parametrize(
    "name", ["a%41", "a*", "a?", "a[b]", "a{b,c}", HOME, "a\\b", "a\nb", "a\u202eb"]
)
def test_k20_a_lake_path_that_hadoop_would_read_is_refused(name: str) -> None:
    """K20: Hadoop takes these for patterns and escapes."""
    with pytest.raises(ValidationError, match="has another meaning in Hadoop"):
        SinkConfig(lake_path=f"/lakes/{name}")


def test_k20_views_of_a_cut_hold_no_variable(sink: DeltaSink) -> None:
    """K20: `cuts sql` prints for sessions that are not ours: nothing can be substituted."""
    tables = {f"shop.{name}": CutTable(table_version=3) for name in (HOME, "it's", "a`b")}
    cut = Cut(
        source="shop",
        batch_number=1,
        published_at_us=0,
        interval=interval_of(1),
        cursor=cursor_at(1),
        tables=tables,
    )
    assert "${" not in " ".join(view_statements(sink.paths, cut, schema="views"))
    with pytest.raises(CutNotFoundError, match="reads as a variable"):
        view_statements(sink.paths, cut, schema=HOME)


@pytest.mark.spark
def test_k20_every_session_has_the_settings_that_sql_relies_on(
    sink_provider: SparkProvider,
) -> None:
    """K20: the first session, each further one, and none of a user's own, which stays as it was."""
    first = sink_provider.session()
    for session in (first, new_session(first)):
        assert {name: session.conf.get(name) for name in SQL_SETTINGS} == dict(SQL_SETTINGS)
    users = first.newSession()
    users.conf.set("spark.sql.variable.substitute", "true")
    users.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    ours = new_session(users)
    assert ours.sql(f"SELECT '{HOME}'").collect()[0][0] == HOME
    assert users.conf.get("spark.sql.variable.substitute") == "true"
    beside = SparkProvider(SparkConfig(settings={"spark.sql.shuffle.partitions": "7"}))
    assert (
        beside.session().conf.get("spark.sql.shuffle.partitions")
        == "7"
        != first.conf.get("spark.sql.shuffle.partitions")
    )
    beside.stop()
    assert first.range(3).count() == 3, "a session beside ends alone"


@pytest.mark.spark
def test_k20_literals_are_what_sparks_parser_reads(sink_provider: SparkProvider) -> None:
    """K20: any text, in a session that substitutes variables too."""
    session = new_session(sink_provider.session())
    session.conf.set("spark.sql.variable.substitute", "true")

    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=150, max_size=200))
    def check(texts: list[str]) -> None:
        wanted = [*ODD, *texts]
        rows = ", ".join(f"({at}, {text_literal(text)})" for at, text in enumerate(wanted))
        found: Any = session.sql(f"SELECT * FROM VALUES {rows} AS t(n, v)").collect()
        assert [row.v for row in sorted(found)] == wanted

    check()
    names = ", ".join(f"1 AS {quoted(name + '_')}" for name in ODD if "${" not in name)
    assert new_session(session).sql(f"SELECT {names}, 1 AS {quoted(HOME)}").columns[-1] == HOME


SCHEMA = table_schema(
    "shop.odd",
    [
        column("id", Kind.TEXT, charset="utf8mb4"),
        column("a", Kind.INT64),
        column("b", Kind.TEXT, charset="utf8mb4"),
    ],
    "id",
)
COLUMNS = target_columns(SCHEMA)
TARGETS = [
    new_target("shop.odd", "app/mirror", COLUMNS, ("id",)),
    new_target(
        "shop.parts", "app/parts", COLUMNS, ("id",), shape=RecordedShape(partition_by=("id",))
    ),
    new_target("shop.${env:HOME}", "app/soft", COLUMNS, ("id",), mode="soft_delete"),
    new_target("shop.it's", "app/history", COLUMNS, ("id",), mode="history"),
]


def _apply(sink: DeltaSink, number: int, changes: list[Change]) -> None:
    batch = sink.begin(number)
    for target in TARGETS:
        if number == 1:
            batch.create(target)
        part = (
            changes if target.spec.shape is None else [one for one in changes if HOME in str(one)]
        )
        if part:
            batch.add(decoded(SCHEMA, part, first_place=100 * number), target)
    cut = sink.finish(batch.record(head_of(number)))
    assert not cut.cursor.suspended, cut.notes


def _live(sink: DeltaSink, table: str) -> dict[str, tuple[Any, Any]]:
    rows = newest_rows(sink.paths.table(table))
    live = [row for row in rows if not row.get("_cdc_deleted") and row.get("__END_AT") is None]
    found = {row["id"]: (row["a"], row["b"]) for row in live}
    assert len(found) == len(live), f"{table} has a key twice"
    return found


@pytest.mark.spark
@pytest.mark.whole
def test_k20_odd_keys_values_and_defaults_in_every_mode(
    open_sink: Callable[..., DeltaSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """K20: keys that a second language would read, alone in a batch, as its least and its greatest;
    MINIMAL images; a partition; a lake whose own path is odd; a DEFAULT."""
    # of a few rows it costs half
    interpreted = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    monkeypatch.setattr(merge_settings, "_COMPILED", interpreted)
    sink = open_sink(lake='a `$x\' "y" @v1 größe,=;#')
    rows: dict[str, tuple[Any, Any]] = {key: (1, key) for key in ODD if "\0" not in key}
    _apply(sink, 1, [insert(id=key, a=a, b=b) for key, (a, b) in rows.items()])
    rows[HOME] = (2, HOME)
    _apply(sink, 2, [update({"id": HOME}, {"a": 2})])
    for target in TARGETS:
        wanted = rows if target.spec.shape is None else {HOME: rows[HOME]}
        assert _live(sink, target.name) == wanted, target.name
    del rows[HOME]
    rows["\\'"] = (7, "x")
    _apply(sink, 3, [delete(id=HOME), update({"id": "\\'"}, {"a": 7, "b": "x"})])
    for target in TARGETS:
        assert _live(sink, target.name) == (rows if target.spec.shape is None else {}), target.name

    steps = [AddColumn(name=name, delta_type="string") for name in ("new", "quoted")]
    fill = FillColumns(
        values=(("new", "string", text_literal(HOME)), ("quoted", "string", f"'{HOME}'"))
    )
    target = new_target("shop.odd", "app/mirror", (*COLUMNS, *target_columns(_defaults())), ("id",))
    batch = sink.begin(4)
    batch.change(target, COLUMNS, (*steps, fill))
    sink.finish(batch.record(head_of(4)))
    filled = newest_rows(sink.paths.table("shop.odd"), "new", "quoted")
    assert filled == [{"new": HOME, "quoted": HOME}] * len(rows), (
        "a variable of the process is in the lake"
    )
    users = sink.spark.session().newSession()
    users.conf.set("spark.sql.variable.substitute", "true")
    frame = read(sink.paths.lake, "shop.${env:HOME}", source="shop", spark=users)
    assert {row.id for row in frame.where("NOT _cdc_deleted").collect()} == set(rows)


def _defaults() -> Any:
    return table_schema(
        "shop.odd", [column(name, Kind.TEXT, charset="utf8mb4") for name in ("new", "quoted")]
    )
