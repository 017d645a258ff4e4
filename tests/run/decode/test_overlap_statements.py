"""K7: statements that come a second time after a switch to another server."""

from __future__ import annotations

import pytest

from cdc_pipeline.errors import CdcError
from cdc_pipeline.schema.evolution.statement_context import Decision
from cdc_pipeline.targets.decided import decided
from tests.targets.renames_model import Names, carried_of, names


def again(model: Names, sql: str) -> Decision:
    return model.rules.decide(
        model.query(sql), targets=model.targets, journal="b.000001", offset=4, in_overlap=True
    )


@pytest.fixture
def model() -> Names:
    """`d.a` has got a column, and `d.b` was renamed to `d.c`."""
    made = names()
    made.create("d.a")
    made.say("ALTER TABLE d.a ADD COLUMN q INT")
    made.create("d.b")
    made.rename(("d.b", "d.c"))
    return made


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE d.a ADD COLUMN q INT", "CREATE TABLE d.a (c1 INT PRIMARY KEY, q INT)"]
)
def test_k7_what_the_targets_have_already_is_recorded(model: Names, sql: str) -> None:
    """A column that was there ended the run with an error of no kind."""
    decision = again(model, sql)
    assert (decision.ddl.decision, decision.changes, decision.creates) == ("recorded", (), ())
    assert decision.ddl.reason.startswith("already applied before the switch")


def test_k7_another_type_than_the_target_has_is_refused(model: Names) -> None:
    with pytest.raises(CdcError):
        again(model, "ALTER TABLE d.a ADD COLUMN q VARCHAR(9)")


def test_k7_k28_a_rename_that_was_applied_suspends_nothing(model: Names) -> None:
    decision = again(model, "RENAME TABLE d.b TO d.c")
    targets, errors = decided(model.targets, decision, may_carry=False)
    assert errors == []
    assert carried_of(targets) == []
