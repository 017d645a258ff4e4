"""Tables that are created, renamed and dropped under a few names, where `rename_table` is `follow`:
each existing table has one target of its own. What the default does: test_renames.py."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.targets.confirmed import confirmed
from cdc_pipeline.targets.decided import StatementTargets
from cdc_pipeline.targets.targets import Targets, targets_at
from tests.targets.test_exact import config, said

FOLLOWING = {"rename_table": "follow"}

NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("swap"), NAMES, NAMES),
    st.tuples(st.just("drop"), NAMES, NAMES),
    st.tuples(st.just("cut"), NAMES, NAMES),
)


@dataclass
class Names:
    """Which table stands under which name, as the server would have it; each table has a column of
    its own."""

    targets: Targets = field(default_factory=lambda: targets_at(config(), None))
    columns: dict[str, str] = field(default_factory=dict)
    made: int = 0
    targets_of: dict[str, str] = field(default_factory=dict)

    def do(self, step: str, name: str, other: str) -> None:
        """One step, if the server would take it."""
        if step == "cut":
            known = self.targets.by_name.values()
            made = (replace(target, is_new=False, replaces="") for target in known)
            self.targets = self.targets.having(*made)
        elif step == "create" and name not in self.columns:
            self.made += 1
            self.columns[name] = f"c{self.made}"
            self.targets = said(self.targets, f"CREATE TABLE {name} (c{self.made} INT PRIMARY KEY)")
        elif step == "rename" and name in self.columns and other not in self.columns:
            self.columns[other] = self.columns.pop(name)
            self.targets = said(self.targets, f"RENAME TABLE {name} TO {other}", **FOLLOWING)
        elif step == "swap" and name != other and {name, other} <= self.columns.keys():
            self.columns[name], self.columns[other] = self.columns[other], self.columns[name]
            self.targets = said(
                self.targets,
                f"RENAME TABLE {name} TO aside, {other} TO {name}, aside TO {other}",
                **FOLLOWING,
            )
        elif step == "drop" and name in self.columns:
            del self.columns[name]
            self.targets = said(self.targets, f"DROP TABLE {name}")

    def check(self) -> None:
        """Each table has a target of its own, which stays the same whatever the table's name."""
        found = {}
        for name, column in self.columns.items():
            schema = TableSchema(
                "d", name, (Column(column, Kind.INT32, 3, 0, nullable=False),), (0,)
            )
            self.targets, (target,) = confirmed(self.targets, schema)
            assert [own.name for own in target.spec.columns] == [column]
            assert self.targets_of.setdefault(column, target.name) == target.name
            found[target.name] = column
        assert len(found) == len(self.columns)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=14))
def test_k13_each_table_has_its_own_target_whatever_names_it_goes_through(
    steps: list[tuple[str, str, str]],
) -> None:
    names = Names()
    for step in steps:
        names.do(*step)
        names.check()


def test_k13_a_table_made_under_the_last_name_of_a_dropped_one_has_its_own_target() -> None:
    """The dropped one came to that name by RENAME: what its target keeps is another table's."""
    names = Names()
    for step in (
        ("create", "a", ""),
        ("cut", "", ""),
        ("rename", "a", "b"),
        ("drop", "b", ""),
        ("create", "b", ""),
    ):
        names.do(*step)
        names.check()
    assert names.targets_of == {"c1": "d.a", "c2": "d.b"}
    met = StatementTargets(names.targets, StatementKind.ALTER_TABLE)
    assert [known.name for known in met.known_all("d", "b")] == ["d.b"]
