"""What statements would do to the lake if the server ran and logged them now.

Rules:
- Each is decided by what a run decides with (`StatementRules.decide`, `decided`), and a failure
  suspends or stops as in a run (`suspend_for`). Nothing is run at the server or written.
- They come behind the end of the log, upon the tables of the last cut. An unfinished batch, or DDL
  that the log has and no run has applied, makes that uncertain, and is told.
- What a text does not show (CALL, EXECUTE, a function that a query calls) is uncertain, never
  harmless. Rows are not computed: a run checks those that a step depends on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.suspensions import cause_of
from cdc_pipeline.operations.rehearse.script import Session, global_settings, statements_of
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.run.capture.suspension import suspend_for
from cdc_pipeline.run.decode.schemas import Schemas, history_file
from cdc_pipeline.run.decode.statements import StatementRules
from cdc_pipeline.run.plan.planning import captured_tables
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.run.wiring import build_sink, build_source
from cdc_pipeline.schema.ddl.published import published
from cdc_pipeline.schema.ddl.statement import TABLE_DDL, Statement, StatementKind, TableName
from cdc_pipeline.schema.evolution.statement_context import Decision, RowPosition
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    CheckRows,
    Describe,
    DropColumn,
    FillColumns,
    RemoveRows,
    RenameColumn,
    Step,
    WidenColumn,
)
from cdc_pipeline.schema.history.apply_ddl import SCHEMA_KINDS
from cdc_pipeline.schema.history.history import SchemaHistory
from cdc_pipeline.schema.types import features_of_type
from cdc_pipeline.sink.delta.features import excluded
from cdc_pipeline.targets.decided import decided
from cdc_pipeline.targets.targets import Targets, targets_at
from cdc_pipeline.text.table_names import table_name
from cdc_pipeline.text.wording import count_of, listed

# "not_reached": an earlier statement stops every run.
Outcome = Literal[
    "applied",
    "recorded",
    "ignored",
    "rows",
    "uncertain",
    "not_logged",
    "suspends",
    "stops",
    "not_reached",
]
HARMFUL: Final = frozenset({"uncertain", "not_logged", "suspends", "stops", "not_reached"})
_K = StatementKind


class RehearsedChange(FrozenModel):
    """`features`: of Delta, that readers need for these; `excludes`: presets that lack one."""

    target: str
    steps: tuple[str, ...]
    features: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


class RehearsedStatement(FrozenModel):
    """`line`: where it begins; `policy`: that of the schema changes which decided, if one did;
    `suspends`: targets; `next_step`: what would be left to do.
    """

    line: int
    sql: str
    outcome: Outcome
    reason: str
    policy: str = ""
    tables: tuple[str, ...] = ()
    changes: tuple[RehearsedChange, ...] = ()
    suspends: tuple[str, ...] = ()
    next_step: str = ""


class Rehearsal(FrozenModel):
    """`position`: the end of the log, behind which the statements come."""

    source: str
    position: str
    statements: tuple[RehearsedStatement, ...]
    warnings: tuple[str, ...] = ()

    @property
    def is_harmless(self) -> bool:
        return not self.warnings and all(
            statement.outcome not in HARMFUL for statement in self.statements
        )


def rehearse(
    config: PipelineConfig, script: str, *, cursors: CursorStore, database: str = ""
) -> Rehearsal:
    """`script`: with DELIMITER, as clients take it. Raises what would keep a run from starting."""
    sink = build_sink(config)
    cut, unfinished = sink.last_cut(), sink.pending_record()
    cursor = reconcile(cursors.read(), cut).cursor
    with closing(build_source(choose(config).config)) as source:
        source.check()
        identity = source.identity
        config = config.comparing(identity.names)
        targets = targets_at(config, cut, cursor)
        end = source.end_position()
        since = end if cursor is None else cursor.position
        placed = source.catalog(targets.keeps_history, since=since)
        programs = source.programs(since=since)
        planned = captured_tables(config, source.tables(), cursor, cut)
    history = SchemaHistory() if cursor is None else history_file(config).read().up_to(cursor.seq)
    epoch = 1 if cursor is None else cursor.epoch
    schemas = Schemas(
        history,
        file=None,
        epoch=epoch,
        start=since,
        ask=lambda _captured: placed,
        ask_programs=lambda: programs,
    )
    log = _Log(config, identity, schemas, targets, end, epoch, planned)
    session = Session(database=database, **global_settings(config, identity))
    statements = tuple(_rehearsed(log, session, script))
    unapplied = sorted(
        table_name(*table)
        for table in (() if placed is None else placed.last_ddl)
        if table[1] and targets.captured(*table)
    )
    pending = []
    if unfinished is not None:
        pending.append(f"batch {unfinished.batch_number} is recorded but unfinished")
    if unapplied or (placed is None and since.order < end.order):
        what = f"DDL of {listed(unapplied)}" if unapplied else "events"
        pending.append(f"the log has {what} that no run has applied")
    uncertain = f"so that the outcome is uncertain: `cdc-pipeline run {config.name}` first"
    return Rehearsal(
        source=config.name,
        position=str(end),
        statements=statements,
        warnings=tuple(f"{reason}, {uncertain}" for reason in pending),
    )


# -- what a run would decide ----------------------------------------------------------------------


@dataclass(slots=True)
class _Log:
    """Of a server that runs the statements; `planned`: the source tables of a run's plan."""

    config: PipelineConfig
    identity: ServerIdentity
    schemas: Schemas
    targets: Targets
    end: Position
    epoch: int
    planned: Collection[str]

    @property
    def is_mariadb(self) -> bool:
        return self.identity.flavor == "mariadb"

    def concerns(self, statement: Statement) -> bool:
        if statement.kind is _K.DML and not statement.tables:
            return True
        return statement.drops_database or (
            statement.kind in TABLE_DDL | {_K.DML}
            and any(self.targets.captured(*table) for table in statement.tables)
        )

    def plan_for(self, created: Iterable[TableName]) -> None:
        """What has no target yet, but will be there when a run is planned."""
        names = {table_name(*table) for table in created if self.targets.captured(*table)}
        self.planned = {*self.planned, *names}

    def rules(self) -> StatementRules:
        return StatementRules(
            self.targets.tables,
            is_mariadb=self.is_mariadb,
            names=self.identity.names,
            config=self.config,
            followed=list(self.targets.followers),
        )

    def decide(self, rules: StatementRules, query: Query) -> tuple[Decision | None, list[CdcError]]:
        """Apply it. None: the last of the errors stops the run; others suspend their tables."""
        self.end = at = replace(self.end, offset=self.end.offset + 1)
        errors: list[CdcError] = []
        while True:
            targets, refused = self.targets, list[CdcError]()
            decision = None
            try:
                decision = rules.decide(
                    query,
                    targets=targets,
                    journal=at.journal,
                    offset=at.offset,
                    schemas=self.schemas,
                    place=RowPosition(at.seq(self.epoch), -1, str(at)),
                )
                targets, unknown = decided(targets, decision)
                refused += unknown
            except CdcError as error:
                decision, refused = None, [error]
            for refusal in refused:
                errors.append(refusal)
                suspend = suspend_for(
                    refusal, self.planned, targets, batch_number=0, at=at, epoch=self.epoch
                )
                if suspend is None:
                    return None, errors
                targets, _ = targets.suspending(
                    suspend.source, suspend.suspension, only=suspend.only
                )
            self.targets = targets
            if decision is not None:
                break
        if decision.statement.kind in SCHEMA_KINDS:
            self.schemas.apply(
                query,
                decision.statement,
                targets.keeps_history,
                journal=at.journal,
                offset=at.offset,
                time_us=-1,
            )
        self.targets = self.targets.having(
            *(
                replace(
                    target.with_state(table_version=max(target.state.table_version, 0)),
                    is_new=False,
                    replaces="",
                    carried=None,
                )
                for target in self.targets.by_name.values()
            )
        )
        return decision, errors


def _rehearsed(log: _Log, session: Session, script: str) -> Iterator[RehearsedStatement]:
    rules, behind_stop = log.rules(), dict[str, Any]()
    copies: set[TableName] = set()  # of queries, whose columns no text shows
    for line, sql in statements_of(script):
        query = session.query(sql)
        statement = rules.parse(query)
        kind = statement.kind
        if kind in (_K.SET, _K.ADMIN):
            session = session.after(sql, is_mariadb=log.is_mariadb)
        if kind is _K.EMPTY:
            continue
        told = partial(
            RehearsedStatement,
            line=line,
            sql=published(statement),
            tables=tuple(table_name(*table) for table in statement.tables),
        )
        if behind_stop:
            yield told(**behind_stop)
        elif session.is_logged is False and log.concerns(statement):
            yield told(
                outcome="not_logged",
                reason="sql_log_bin is off: the lake never learns of it",
                next_step="take new snapshots of the captured tables that it changes",
            )
        elif kind is _K.DML or (kind is _K.CREATE_TABLE_SELECT and not statement.temporary):
            outcome = _of_rows(statement, is_captured=log.concerns(statement))
            if kind is not _K.DML:
                copies.update(statement.tables)
                log.plan_for(statement.tables)
            yield told(**_if_logged(outcome, session, log, statement))
        elif not copies.isdisjoint(statement.tables) and log.concerns(statement):
            outcome = {
                "outcome": "uncertain",
                "reason": "a table has the columns of a query, which the text does not show",
                "next_step": "run the CREATE TABLE ... SELECT first, and rehearse what follows it",
            }
            yield told(**_if_logged(outcome, session, log, statement))
        else:
            before = log.targets
            decision, errors = log.decide(rules, query)
            suspends = sorted(log.targets.suspended.keys() - before.suspended.keys())
            outcome = _outcome(decision, errors, before) | {"suspends": tuple(suspends)}
            outcome = _if_logged(outcome, session, log, statement)
            yield told(**outcome)
            if decision is None:
                behind_stop = _behind_stop(line, is_certain=outcome["outcome"] == "stops")


def _behind_stop(line: int, *, is_certain: bool) -> dict[str, Any]:
    reason = f"the statement of line {line} stops every run"
    if is_certain:
        return {"outcome": "not_reached", "reason": reason}
    return {"outcome": "uncertain", "reason": f"{reason} if it is logged"}


def _if_logged(
    outcome: dict[str, Any], session: Session, log: _Log, statement: Statement
) -> dict[str, Any]:
    if session.is_logged is not None or not log.concerns(statement):
        return outcome
    return outcome | {
        "outcome": "uncertain",
        "reason": "whether sql_log_bin is on is not known; if it is: "
        f"{outcome['outcome']}, {outcome['reason']}",
        "next_step": "set sql_log_bin to 0 or 1 in the script; if it is off, take new snapshots of "
        "the captured tables that the statement changes",
    }


def _of_rows(statement: Statement, *, is_captured: bool) -> dict[str, Any]:
    if not statement.tables:
        return {
            "outcome": "uncertain",
            "reason": f"{statement.verb or 'it'} may run statements that the text does not show",
            "next_step": "rehearse these too",
        }
    if not is_captured:
        return {"outcome": "ignored", "reason": "not a captured table"}
    return {"outcome": "rows", "reason": "the log has its rows, as those of any statement"}


def _outcome(
    decision: Decision | None, errors: Sequence[CdcError], before: Targets
) -> dict[str, Any]:
    changes = () if decision is None else tuple(_changes(decision, before))
    if not errors:
        assert decision is not None
        ddl = decision.ddl
        waits = ddl.decision == "ignored" and any(
            before.captured(*table) for table in decision.statement.tables
        )
        return {
            "outcome": ddl.decision,
            "reason": "its table is suspended, and learns of it when it catches up"
            if waits
            else ddl.reason,
            "policy": ddl.policy,
            "changes": changes,
        }
    for error in errors:
        error.journal = error.offset = None  # a place that no log has
    return {
        "outcome": "stops" if decision is None else "suspends",
        "reason": "; ".join(cause_of(error) for error in errors),
        "changes": changes,
        "next_step": "; ".join(error.next_step for error in errors if error.next_step),
    }


def _changes(decision: Decision, before: Targets) -> Iterator[RehearsedChange]:
    for created in decision.creates:
        for route in before.routes_of(table_name(*created.table)):
            columns = created.source.columns
            count = count_of(len(columns), "column")
            types = [column.delta_type for column in columns]
            features = {feature for text in types for feature in features_of_type(text)}
            yield _change(route.target, [f"a new table of {count}"], features)
    for change in decision.changes:
        words = [_words(step) for step in change.steps]
        if change.is_carried or change.new_name != change.table:
            words.append(f"goes on as {table_name(*change.new_name)}")
        if change.replaces or change.empties:
            words.append("becomes an empty table")
        features = {feature for step in change.steps for feature in step.features}
        yield _change(change.known.name or table_name(*change.table), words, features)


def _change(target: str, steps: Sequence[str], features: Collection[str]) -> RehearsedChange:
    return RehearsedChange(
        target=target,
        steps=tuple(steps),
        features=tuple(sorted(features)),
        excludes=excluded(*features),
    )


def _words(step: Step) -> str:
    match step:
        case AddColumn():
            return f"adds {step.name} {step.delta_type}"
        case DropColumn():
            return f"drops {step.name}"
        case RenameColumn():
            return f"renames {step.name} to {step.new_name}"
        case WidenColumn():
            return f"widens {step.name} to {step.delta_type}"
        case FillColumns():
            return f"fills {', '.join(name for name, _, _ in step.values)} in all rows"
        case RemoveRows():
            return "removes all rows, as its mode does"
        case Describe():
            return f"sets comments of {listed([name or 'the table' for name, _ in step.comments])}"
        case CheckRows():
            return f"looks for rows for which {step.reason}; with one, a snapshot is needed"
