"""K28: after every statement the lake's table of a name holds what the server's table of that name
holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.errors import ContentUnknownError, MergeError, SchemaError, UnsupportedDdlError
from cdc_pipeline.lake.earlier_layouts import column_defaults_after
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import (
    BatchRecord,
    ColumnDefault,
    Cut,
    CutTable,
    Interval,
    RecordedContent,
    RecordedTarget,
)
from cdc_pipeline.position.cursor import CursorState, TargetState
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.xa import check_not_parked
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.evolution.steps import AddColumn, FillColumns
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.next_cut import next_cut
from cdc_pipeline.sink.replace.content import carried_content
from cdc_pipeline.sink.target import Carried
from cdc_pipeline.targets.decided import StatementTargets, decided
from cdc_pipeline.targets.targets import route_to
from cdc_pipeline.text.table_names import table_name
from tests.targets.renames_model import Held, Names, carried_of, names

NAMES = st.sampled_from(["d.a", "d.b", "d.c", "e.a", "d.u1"])
STEPS = st.tuples(
    st.sampled_from(["create", "drop", "rename", "swap", "cycle", "rotate", "rows", "load"]),
    NAMES,
    NAMES,
    NAMES,
)


def do(model: Names, step: str, one: str, other: str, third: str) -> None:
    """One step, if the server would take it."""
    there = model.tables
    if step == "create" and one not in there:
        model.create(one)
    elif step == "drop" and one in there:
        model.drop(one)
    elif step == "rename" and one in there and other not in there:
        model.rename((one, other))
    elif step == "swap" and len({one, other}) == 2 and {one, other} <= there.keys():
        model.swap(one, other)
    elif step == "cycle" and len({one, other, third}) == 3 and {one, other, third} <= there.keys():
        model.swap(one, other, third)
    elif (
        step == "rotate"
        and len({one, other, third}) == 3
        and {one, third} <= there.keys()
        and other not in there
    ):
        model.rename((one, other), (third, one))
    elif step == "rows" and one in there:
        model.rows(one)
    elif step == "load" and one in there and not one.startswith("d.u"):
        model.load(one)


def begun(**sections: Any) -> Names:
    """Three tables that are captured from their creation on."""
    model = names(**sections)
    for name in ("d.a", "d.b", "e.a"):
        model.create(name)
    return model


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=14), st.sampled_from(["keep", "apply"]))
def test_k28_each_name_shows_its_table_after_any_statements(
    steps: list[tuple[str, str, str, str]], drops: str
) -> None:
    model = begun(schema_changes={"drop_table": drops})
    for step in steps:
        do(model, *step)
        model.check()
    model.end()


@settings(max_examples=150)
@given(
    st.lists(STEPS, max_size=14).map(lambda steps: [step for step in steps if "d.u1" not in step])
)
def test_k28_among_captured_tables_of_one_rule_nothing_needs_a_load(
    steps: list[tuple[str, str, str, str]],
) -> None:
    model = begun()
    for step in steps:
        do(model, *step)
        model.check()
        assert model.stopped == {}
        assert {f"{name}" for name in model.tables} <= model.held.keys()
        assert all(model.held[name].is_whole for name in model.tables)


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=14), st.sampled_from(["soft_delete", "history", "changelog"]))
def test_k28_in_the_modes_that_keep_the_past_too(
    steps: list[tuple[str, str, str, str]], mode: str
) -> None:
    model = begun(targets=[{"tables": ["*.*"], "mode": mode, "name": "{schema}.{table}"}])
    for step in steps:
        if step[0] == "create" and step[1] in model.held:
            continue  # stops for its own reason: what keeps the past is not made again
        do(model, *step)
        model.check()
    model.end()


def test_f26_k28_the_nightly_rebuild() -> None:
    """`s` kept the rows of the first night for ever, and the living table was `s_stage__2`."""
    model = names()
    model.create("d.s")
    for night in range(2, 5):
        model.create("d.s_stage")
        model.rename(("d.s", "d.s_prev"), ("d.s_stage", "d.s"))
        assert (model.held["d.s"], model.held["d.s_prev"]) == (Held((night,)), Held((night - 1,)))
        assert model.decisions[-1].ddl.policy == "rename_table=by_name"
        model.drop("d.s_prev")
        model.check()
    assert sorted(model.held) == ["d.s", "d.s_prev", "d.s_stage"]


def test_k28_tables_that_exchange_their_names_take_over_what_was_there_before() -> None:
    model = names()
    for name in ("d.a", "d.b", "e.a"):
        model.create(name)
    model.swap("d.a", "d.b")
    assert (model.held["d.a"], model.held["d.b"]) == (Held((2,)), Held((1,)))
    model.swap("d.a", "d.b", "e.a")
    assert [model.held[name].tables for name in ("d.a", "d.b", "e.a")] == [(1,), (3,), (2,)]
    model.end()


def test_k20_k28_names_with_dots_are_pairs() -> None:
    """Table `b.c` of schema `a` and table `c` of schema `a.b` are two."""
    model = names(tables={"include": ["*.*"]})
    model.made = 1
    for said in (
        "CREATE TABLE `a`.`b.c` (c1 INT PRIMARY KEY)",
        "RENAME TABLE `a`.`b.c` TO `a.b`.`c`",
    ):
        model.say(said)
    assert sorted(model.held) == ["`a.b`.c", "a.b.c"]
    assert model.held["`a.b`.c"] == Held((1,))
    assert list(model.targets.by_name["`a.b`.c"].spec.sources) == ["`a.b`.c"]
    assert model.targets.by_name["a.b.c"].spec.sources["a.b.c"].gone


def test_k28_a_name_that_is_left_is_as_after_drop_table() -> None:
    model = names()
    model.create("d.a")
    model.rename(("d.a", "d.b"))
    assert model.targets.by_name["d.a"].spec.sources["d.a"].gone
    assert model.held == {"d.a": Held((1,)), "d.b": Held((1,))}
    model.create("d.a")
    assert model.held == {"d.a": Held((2,)), "d.b": Held((1,))}
    removing = names(schema_changes={"drop_table": "apply"})
    removing.create("d.a")
    removing.rename(("d.a", "d.b"))
    assert removing.held == {"d.a": Held(()), "d.b": Held((1,))}


def test_k28_rows_that_were_not_captured_suspend_the_name_until_it_is_loaded() -> None:
    model = names()
    model.create("d.a")
    model.create("d.u1")
    model.rename(("d.a", "d.b"), ("d.u1", "d.a"))
    assert model.stopped.keys() == {"d.a"}
    assert model.held["d.b"] == Held((1,))  # what the name held before went on with its table
    error = model.stopped["d.a"]
    assert isinstance(error, ContentUnknownError)
    assert (
        error.next_step == "take a snapshot of the table: `cdc-pipeline snapshot bank --table d.a`"
    )
    model.load("d.a")
    assert (model.held["d.a"], model.stopped) == (Held((2,)), {})


def test_k28_a_name_without_a_target_gets_a_partial_one() -> None:
    model = names()
    model.create("d.u1")
    model.rename(("d.u1", "d.a"))
    assert (model.stopped, model.held) == ({}, {})
    (target,) = model.rows("d.a")
    assert target.state.partial


def test_k28_a_suspended_name_is_over_when_its_table_goes() -> None:
    """No load could have brought its rows."""
    for leave in ("DROP TABLE d.a", "RENAME TABLE d.a TO d.u2", "DROP DATABASE d"):
        model = names()
        model.create("d.a")
        model.create("d.u1")
        model.rename(("d.a", "d.b"), ("d.u1", "d.a"))
        assert model.stopped.keys() == {"d.a"}
        model.say(leave)
        assert model.stopped == {}
        assert model.targets.by_name["d.a"].spec.sources["d.a"].gone


def test_k28_a_suspended_name_gets_the_rows_of_a_table_that_goes_on() -> None:
    model = names()
    for name in ("d.a", "d.b", "d.u1"):
        model.create(name)
    model.rename(("d.a", "d.u2"), ("d.u1", "d.a"))
    assert model.stopped.keys() == {"d.a"}
    model.swap("d.a", "d.b")
    assert (model.stopped.keys(), model.held["d.a"]) == ({"d.b"}, Held((2,)))


def test_k20_a_database_whose_name_has_a_dot_has_its_tables() -> None:
    model = names()
    model.create("d.a")
    known, name = model.targets, table_name("a.b", "t")
    target = known.by_name["d.a"]
    spec = target.spec.model_copy(update={"sources": {name: target.spec.sources["d.a"]}})
    dotted = replace(known, by_name={name: replace(target, spec=spec)})
    tables = StatementTargets(dotted, StatementKind.DROP_DATABASE)
    assert (tables.names_in("a.b"), tables.names_in("a")) == (["t"], [])


OTHER_RULES: list[list[dict[str, Any]]] = [
    [{"tables": ["d.b"], "mode": "soft_delete", "name": "{schema}.{table}"}],
    [{"tables": ["d.b"], "computed": {"z": {"expression": "1", "type": "int"}}}],
    [{"tables": ["d.a", "d.b"], "name": "d.ab", "shard_column": "shard"}],
    [{"tables": ["d.b"], "mode": "changelog", "name": "{schema}.{table}"}],
    [{"tables": ["*.*"], "mode": "changelog", "name": "{schema}.{table}"}],
    [{"tables": ["*.*"], "mode": "history", "name": "{schema}.{table}"}],
]


@pytest.mark.parametrize("rules", OTHER_RULES)
def test_k28_rows_of_another_rule_or_history_need_a_load(rules: list[dict[str, Any]]) -> None:
    model = names(targets=rules)
    for name in ("d.a", "d.b"):
        model.tables[name] = 1
        model.say(f"CREATE TABLE {name} (c1 INT PRIMARY KEY)")
        model.rows(name)
    model.rename(("d.b", "d.u1"), ("d.a", "d.b"))
    assert len(model.stopped) == 1
    assert "d.a has taken the name d.b" in next(iter(model.stopped.values())).what


def test_k28_a_history_goes_to_a_name_that_has_none() -> None:
    model = names(targets=[{"tables": ["*.*"], "mode": "history"}])
    model.create("d.a")
    model.rename(("d.a", "d.b"))
    assert (model.stopped, model.held["d.b_history"]) == ({}, Held((1,)))


def test_k28_soft_deletes_of_the_name_stay() -> None:
    model = names(targets=[{"tables": ["*.*"], "mode": "soft_delete", "name": "{schema}.{table}"}])
    for name in ("d.a", "d.b"):
        model.tables[name] = 1
        model.say(f"CREATE TABLE {name} (c1 INT PRIMARY KEY)")
        model.rows(name)
    model.rename(("d.b", "d.u1"), ("d.a", "d.b"))
    assert (model.stopped, model.held["d.b"]) == ({}, Held((1, 1)))


def test_k28_names_that_lead_to_one_target_move_no_row() -> None:
    model = names(targets=[{"tables": ["d.a", "d.b"], "name": "d.one"}])
    model.create("d.a")
    decision = model.say("RENAME TABLE d.a TO d.b")
    model.tables = {"d.b": 1}
    assert not any(change.is_carried for change in decision.changes)
    assert (model.stopped, list(model.targets.by_name["d.one"].spec.sources)) == ({}, ["d.b"])
    model.check()
    assert model.targets.by_name["d.one"].state.origin is None


def test_k28_columns_that_change_with_the_name() -> None:
    model = names()
    model.create("d.a")
    decision = model.say("ALTER TABLE d.a ADD COLUMN q INT, RENAME TO d.b")
    steps = {change.new_name: len(change.steps) for change in decision.changes}
    assert steps == {("d", "b"): 1, ("d", "a"): 0}
    target = model.targets.by_name["d.b"]
    assert [column.name for column in target.spec.columns] == ["c1", "q"]
    assert [column.name for column in model.targets.by_name["d.a"].spec.columns] == ["c1"]


def test_k28_a_change_that_cannot_be_applied_stays_with_the_name_that_is_left() -> None:
    """The rows go nowhere, and the table's old name is not suspended for ever: nothing could load
    it."""
    model = names()
    model.create("d.a")
    model.create("d.b")
    model.say("DROP TABLE d.b")
    model.say("ALTER TABLE d.a ADD COLUMN q INT NOT NULL AUTO_INCREMENT UNIQUE, RENAME TO d.b")
    assert model.stopped.keys() == {"d.b"}
    assert model.targets.by_name["d.a"].spec.sources["d.a"].gone


def test_k28_follow_and_keep_are_settings() -> None:
    following = names(schema_changes={"rename_table": "follow"})
    following.create("d.a")
    following.say("RENAME TABLE d.a TO d.b")
    assert list(following.targets.by_name["d.a"].spec.sources) == ["d.b"]
    assert following.targets.by_name["d.a"].state.origin == ("d.a", "d.a")
    keeping = names(schema_changes={"rename_table": "keep"})
    for name in ("d.a", "d.b"):
        keeping.create(name)
    keeping.swap("d.a", "d.b")
    # their rows stay, and so are not those of the names
    assert keeping.stopped.keys() == {"d.a", "d.b"}


def test_k28_a_target_of_an_earlier_version_goes_on_with_its_table() -> None:
    """It followed a renamed table under the old name: so it does until it is loaded."""
    following = names(schema_changes={"rename_table": "follow"})
    following.create("d.a")
    following.say("RENAME TABLE d.a TO d.b")
    model = names()
    model.targets = model.targets.having(*following.targets.by_name.values())
    decision = model.say("RENAME TABLE d.b TO d.c")
    assert not any(change.is_carried for change in decision.changes)
    assert list(model.targets.by_name["d.a"].spec.sources) == ["d.c"]


def test_k28_no_row_is_carried_before_a_cut_has_it() -> None:
    """In the overlap with the log of another server (K7) nothing is published: a name that held
    rows needs a load."""
    model = names()
    for name in ("d.a", "d.b"):
        model.create(name)
    model.say("DROP TABLE d.b")
    targets = model.targets
    decision = model.rules.decide(
        model.query("RENAME TABLE d.a TO d.b"), targets=targets, journal="b.000001", offset=4
    )
    targets, errors = decided(targets, decision, may_carry=False)
    assert [error.targets for error in errors] == [("d.b",)]
    assert carried_of(targets) == []


def _record(*targets: RecordedTarget, states: dict[str, TargetState]) -> BatchRecord:
    cursor = CursorState(
        source="bank",
        batch_number=2,
        flavor="mysql",
        server_id=1,
        journal="b.000001",
        offset=500,
        targets=states,
    )
    return BatchRecord(
        source="bank",
        batch_number=2,
        interval=Interval(start=Position("b.000001", 400), end=Position("b.000001", 500)),
        cursor_after=cursor,
        start=Position("b.000001", 400),
        targets=targets,
    )


def test_k28_a_target_that_could_not_be_given_its_rows_waits_for_a_load() -> None:
    """It would go on with the rows of another table: catching up could not change that."""
    model = names()
    for name in ("d.a", "d.b"):
        model.create(name)
    model.say("RENAME TABLE d.b TO d.u1, d.a TO d.b")
    columns = (TargetColumn(name="c1", delta_type="int"),)
    content = RecordedContent(path="d/a", version=0, app_id="a", renamed_from="d.a")
    target = RecordedTarget(
        table="d.b", app_id="new", spec=TargetSpec(columns=columns, key=("c1",)), content=content
    )
    before = TargetState(table="d.b", app_id="old", table_version=3, applied_batch=1)
    record = _record(target, states={"d.b": before.model_copy(update={"app_id": "new"})})
    previous = Cut(
        source="bank", batch_number=1, published_at_us=0, interval=record.interval,
        cursor=record.cursor_after.model_copy(update={"batch_number": 1,
            "targets": {"d.b": before}}),
        tables={"d.b": CutTable(table_version=3, spec=TargetSpec(columns=columns, key=("c1",)))},
    )  # fmt: skip
    cut = next_cut(record, previous, {}, {"d.b": MergeError("it failed")})
    state = cut.cursor.targets["d.b"]
    assert state.suspended is not None
    assert (state.app_id, state.table_version, state.suspended.needs_snapshot) == ("old", 3, True)
    assert state.suspended.offset == 400
    loaded = target.model_copy(update={"content": content.model_copy(update={"renamed_from": ""})})
    cut = next_cut(
        record.model_copy(update={"targets": (loaded,)}),
        previous,
        {},
        {"d.b": MergeError("it failed")},
    )
    assert cut.cursor.targets["d.b"] == before  # a load that fails leaves the target as it was


def test_k28_a_record_names_table_and_version_of_the_rows_and_looks_at_nothing(
    tmp_path: Path,
) -> None:
    """No table's log can keep a batch from being recorded."""
    paths = LakePaths(tmp_path, "bank")
    content = carried_content(paths, None, Carried("d.a", "app", 7, (), keeps_rows=True))
    assert (content.path, content.version, content.app_id) == ("d/a", 7, "app")
    assert (content.files, content.renamed_from, content.keeps_rows) == (-1, "d.a", True)
    assert RecordedContent.model_validate_json(content.model_dump_json()) == content


def test_k28_a_changelog_takes_what_is_known_of_added_columns_along() -> None:
    columns = (TargetColumn(name="c1", delta_type="int"), TargetColumn(name="q", delta_type="int"))
    given = (ColumnDefault(column="c", delta_type="int", value="5", seq="7"),)
    content = RecordedContent(
        path="d/a", version=0, app_id="a", renamed_from="d.a", column_defaults=given
    )
    target = RecordedTarget(table="d.b", app_id="new",
        spec=TargetSpec(mode="changelog", columns=columns),
        content=content, schema_steps=(AddColumn(name="q", delta_type="int"),
                      FillColumns(values=(("q", "int", "4"),), defaults=("q",), seq="9")))  # fmt: skip  # noqa: E501
    assert [one.column for one in column_defaults_after(None, target)] == ["c", "q"]


def test_k28_rows_that_wait_for_xa_commit_under_the_old_name_stop_the_table() -> None:
    model = names()
    model.create("d.a")
    query = model.query("RENAME TABLE d.a TO d.b")
    decision = model.rules.decide(query, targets=model.targets, journal="b.000001", offset=4)
    parked = SimpleNamespace(holds_rows_of=lambda source: source == "d.a")
    with pytest.raises(UnsupportedDdlError, match="prepared XA") as caught:
        check_not_parked(decision, parking=parked, targets=model.targets)  # type: ignore[arg-type]
    assert caught.value.table == "d.a"
    free = SimpleNamespace(holds_rows_of=lambda _source: False)
    check_not_parked(decision, parking=free, targets=model.targets)  # type: ignore[arg-type]


@pytest.mark.parametrize("has_followed_before", [False, True])
def test_k22_k28_a_target_that_the_statement_moves_takes_over_nothing(
    has_followed_before: bool,
) -> None:
    """Of two tables that exchange their names one keeps its target. The other one's rows have no
    place then, and its name waits for a snapshot; every run ended with StopIteration."""
    if has_followed_before:
        following = names(schema_changes={"rename_table": "follow"})
        following.create("d.b")
        following.say("RENAME TABLE d.b TO d.c")
        model = names()
        model.targets = model.targets.having(*following.targets.by_name.values())
        model.tables, model.held, model.made = {"d.c": 1}, {"d.b": Held((1,))}, 1
        model.whole = {1}
        name, new = "d.c", "d.c"
    else:
        rule = {"tables": ["d.b"], "schema_changes": {"rename_table": "follow"}}
        model = names(targets=[rule])
        model.create("d.b")
        name, new = "d.b", "d.b__2"
    model.create("d.a")
    model.rename(("d.a", "d.u1"), (name, "d.a"), ("d.u1", name))
    assert model.held == {"d.b": Held((1,)), "d.a": Held((2,))}, "nothing is overwritten"
    assert list(model.targets.by_name["d.b"].spec.sources) == ["d.a"]
    assert model.targets.by_name["d.a"].spec.sources["d.a"].gone
    error = model.stopped[new]
    assert isinstance(error, ContentUnknownError)
    assert (error.table, error.journal, error.offset) == (name, "b.000001", 400)
    assert error.next_step is not None
    assert f"snapshot bank --table {name}" in error.next_step
    assert carried_of(model.targets) == []
    model.end()
    model.load(name)
    model.end()
    assert (model.stopped, model.held[new]) == ({}, Held((2,)))


def test_k22_a_target_that_a_table_does_not_have_is_an_error_of_the_table() -> None:
    model = names()
    model.create("d.a")
    with pytest.raises(SchemaError, match=r"d\.b is no longer a target of d\.a") as caught:
        route_to(model.targets, "d.a", "d.b")
    assert caught.value.table == "d.a"
