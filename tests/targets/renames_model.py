"""Tables under names at a server, and what the targets of a lake hold after each statement: no log,
no Spark.

A table is known by its only column, `c<number>`, so that the number is what its target holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.suspensions import suspension
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.decode.statements import StatementRules
from cdc_pipeline.schema.evolution.statement_context import Decision
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.confirmed import confirmed
from cdc_pipeline.targets.decided import created_in_log, decided
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.targets.targets import Targets, targets_at
from cdc_pipeline.text.table_names import NameRule
from tests.targets.test_exact import config

AT = Position("b.000001", 400)


def carried_of(targets: Targets) -> list[Target]:
    return [target for target in targets.by_name.values() if target.carried is not None]


@dataclass(frozen=True)
class Held:
    """What a target holds: the numbers of the tables whose rows are in it, and whether they are all
    of the last one."""

    tables: tuple[int, ...]
    is_whole: bool = True


@dataclass
class Names:
    """Tables at the server by name, and the lake's targets.

    Attributes:
        tables: number of each table by ``schema.table``.
        held: by target.
        stopped: what suspended targets, by target.
        whole: tables all of whose rows were captured or loaded.
    """

    config: PipelineConfig = field(
        default_factory=lambda: config(tables={"include": ["d.*", "e.*"]})
    )
    tables: dict[str, int] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    stopped: dict[str, CdcError] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    made: int = 0
    whole: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.filter = TableFilter(self.config)
        self.targets = targets_at(self.config, None)
        self.rules = StatementRules(
            self.filter, is_mariadb=False, names=NameRule.AS_GIVEN, config=self.config, followed=()
        )

    def is_captured(self, name: str) -> bool:
        return self.filter.captured(*name.split("."))

    # -- at the server -----------------------------------------------------------------------------

    def create(self, name: str) -> None:
        self.made += 1
        self.tables[name] = self.made
        if self.is_captured(name):
            self.whole.add(self.made)
        self.say(f"CREATE TABLE {name} (c{self.made} INT PRIMARY KEY)")
        self.rows(name)

    def drop(self, name: str) -> None:
        del self.tables[name]
        self.say(f"DROP TABLE {name}")

    def rename(self, *pairs: tuple[str, str]) -> None:
        """One statement, from left to right."""
        for old, new in pairs:
            self.tables[new] = self.tables.pop(old)
        self.whole -= {number for name, number in self.tables.items() if not self.is_captured(name)}
        self.say("RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in pairs))

    def swap(self, *names: str) -> None:
        """Each name gets the table of the next one."""
        first, *others = names
        pairs = [(first, "d.aside_of_all")]
        pairs += [(name, before) for before, name in zip(names, others, strict=False)]
        self.rename(*pairs, ("d.aside_of_all", names[-1]))

    def rows(self, name: str) -> list[Target]:
        """A change of a table comes: its targets are confirmed, or made; none for one that is not
        followed now."""
        database, table = name.split(".")
        if not self.is_captured(name) or self.targets.is_suspended(database, table):
            return []
        column = Column(f"c{self.tables[name]}", Kind.INT32, 3, 0, nullable=False)
        self.targets, found = confirmed(self.targets, TableSchema(database, table, (column,), (0,)))
        self.cut()
        return found

    def load(self, name: str) -> None:
        """A load puts the table of a name in its target's place."""
        for route in self.targets.routes_of(name):
            known = self.targets.resumed(route.target)
            others = {
                name: target for name, target in known.by_name.items() if name != route.target
            }
            moved = tuple(name for name in known.moved if name in others)
            self.targets = replace(known, by_name=others, moved=moved)
            self.stopped.pop(route.target, None)
        self.targets = created_in_log(self.targets, [name])
        self.whole.add(self.tables[name])
        self.rows(name)

    # -- in the lake -------------------------------------------------------------------------------

    def say(self, sql: str, *, database: str = "d") -> Decision:
        """A statement comes, as the drain takes it."""
        query = self.query(sql, database)
        decision = self.rules.decide(
            query, targets=self.targets, journal=AT.journal, offset=AT.offset
        )
        self.decisions.append(decision)
        before, there = dict(self.held), self.targets.by_name
        self.targets, errors = decided(self.targets, decision)
        for target in carried_of(self.targets):
            assert target.carried is not None
            origin_state = there[target.carried.origin].state
            assert (target.carried.app_id, target.carried.version) == (
                origin_state.app_id,
                origin_state.table_version,
            )
            assert target.state.app_id not in {known.state.app_id for known in there.values()}
            kept = before[target.name].tables if target.carried.keeps_rows else ()
            origin = before[target.carried.origin]
            self.held[target.name] = replace(origin, tables=(*kept, *origin.tables))
            self.stopped.pop(target.name, None)
        for error in errors:
            assert error.table is not None
            made = suspension(error, batch_number=1, at=AT, epoch=1)
            assert made.needs_snapshot
            self.targets, names = self.targets.suspending(error.table, made, only=error.targets)
            for name in names:
                self.stopped[name] = error
        for name in list(self.stopped):
            if (
                name not in self.targets.states(self.held)
                or self.targets.states(self.held)[name].suspended is None
            ):
                del self.stopped[name]
        for change in decision.changes:
            if change.steps and change.known.source.gone:
                self.held[change.known.name] = Held(())
        self.cut()
        return decision

    @staticmethod
    def query(sql: str, database: str = "d") -> Query:
        """A statement's event."""
        return Query(sql, database, 1, 0, None, "", None, "", "", sql.encode(), True, -1)

    def cut(self) -> None:
        """The batch is done; a new target holds the table whose column it has."""
        for known in self.targets.by_name.values():
            if known.is_new and known.carried is None:
                number = int(known.spec.columns[0].name.removeprefix("c"))
                self.held[known.name] = Held((number,), is_whole=not known.state.partial)
            state = known.state.model_copy(
                update={"table_version": max(known.state.table_version, 0)}
            )
            made = replace(known, state=state, is_new=False, replaces="", carried=None)
            self.targets = self.targets.having(made)

    def end(self) -> None:
        """A change of every table comes, and each is looked at."""
        for name in self.tables:
            self.rows(name)
        self.check()

    def check(self) -> None:
        """The lake's table of each name holds what the server's table of that name holds; or says
        that it does not."""
        for name, number in self.tables.items():
            if not self.is_captured(name):
                continue
            for route in self.targets.routes_of(name):
                if route.target in self.stopped or route.target not in self.held:
                    continue
                held = self.held[route.target]
                assert held.tables[-1:] == (number,), (name, number, held)
                (target,) = (one for one in self.rows(name) if one.name == route.target)
                assert target.state.partial is not held.is_whole
                assert number in self.whole or not held.is_whole
                assert [column.name for column in target.spec.columns] == [f"c{number}"]


def names(**sections: Any) -> Names:
    """A model of a configuration that captures the databases d and e, but for tables
    `u<number>`."""
    tables = {"include": ["d.*", "e.*"], "exclude": ["d.u?", "d.aside_of_all"]}
    return Names(config(**{"tables": tables, **sections}))
