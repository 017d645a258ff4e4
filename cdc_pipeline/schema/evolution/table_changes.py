"""CREATE, DROP, TRUNCATE and RENAME of whole tables, and the swap of online schema changes, by
policy (K13).

Rules:
- A dropped table's target stays (or is emptied), marked gone: a later table of that name starts
  from scratch.
- A target shows the table of its name (K28): a RENAME carries the rows of each captured table to
  the target of the new name. A name left without a table is treated as if its table was dropped. If
  a table takes a captured name, this module does not decide which rows it brings:
  `Decision.arrivals` names it, and the targets show whether its rows are known.
- By policy a target follows its table instead and keeps the old name.
- A shadow that replaces its table brings the same rows: the target replays the shadow's statements
  since its creation. Whatever a copy may lose is uncertain and stops the table (`alterations`,
  `shadow=True`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from cdc_pipeline.errors import UnsupportedDdlError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.statement import CREATES, StatementKind, TableName
from cdc_pipeline.schema.ddl.tokens import Uncertain, certain
from cdc_pipeline.schema.evolution.alterations import Unreadable, read_alteration
from cdc_pipeline.schema.evolution.statement_context import (
    Arrival,
    CreateTarget,
    Decision,
    KnownTable,
    Shadow,
    ShadowChange,
    StatementContext,
    TableChange,
)
from cdc_pipeline.schema.evolution.steps import (
    ROW_STEPS,
    ROW_STEPS_MAX,
    RemoveRows,
    returns_to_earlier_columns,
)
from cdc_pipeline.schema.source_table import altered, comments_of, created
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.text.table_names import table_name

_K = StatementKind
_FROM_MAP: Final = "the target is created from its first table map"

# -- CREATE ----------------------------------------------------------------------------------------


def create(context: StatementContext) -> Decision:
    statement, table = context.statement, context.statement.tables[0]
    known = context.recorded(table)
    if known is not None and not known.source.gone:
        if statement.if_not_exists:
            return context.decided("the target already exists")
        policy = known.policy.drop_table
        if not statement.or_replace or policy == "stop":
            raise context.unsupported(
                "the table is recreated, but its target still has rows of the old one", table
            )
    is_there = known is None and statement.if_not_exists and context.before(*table) is not None
    target = "the table exists" if is_there else _created(context)
    if isinstance(target, str):
        if known is None:
            return context.decided(f"{target}: {_FROM_MAP}")
        # The old rows are gone for good; the new columns are known from the first table map.
        emptied = _emptied(context, table, known, "drop_table")
        return context.decided(
            f"{target}: the target is emptied now, and recreated from its first table map",
            [replace(emptied, known=known.as_gone(), empties=True)],
        )
    count = len(target.source.columns)
    if known is None:
        return context.decided(f"creates the target with {count} columns", creates=(target,))
    if known.shared:
        what = "its table is recreated, and others share the target"
        raise context.contradiction(known, table, what, "shard_column")
    recreated = TableChange(table, KnownTable(target.source, name=known.name), replaces=True)
    return context.decided(f"recreates the target, empty, with {count} columns", [recreated])


def _created(context: StatementContext) -> CreateTarget | str:
    """The target that the statement creates, or why its text does not determine it."""
    statement, table = context.statement, context.statement.tables[0]
    if statement.kind is _K.CREATE_TABLE_LIKE:
        like = context.before(*statement.reads[0]) if statement.reads else None
        if like is None or not like.schema.primary_key:
            return "LIKE another table"
        schema, known = like.schema, context.recorded(statement.reads[0])
        comments = () if known is None else known.source.comments
    elif statement.kind is _K.CREATE_TABLE_SELECT:
        return "columns from a query"
    else:
        try:
            text, is_mariadb = certain(statement.created), statement.is_mariadb
            # A charset of the database that makes bytes of text is found by the first table map.
            schema = created(table, text, database_charset="", is_mariadb=is_mariadb).schema
        except Uncertain:
            return "its columns cannot be read with certainty"
        comments = comments_of({"": text.comment} | {c.name: c.comment for c in text.columns})
    columns = target_columns(schema)
    if not schema.primary_key:
        return "its text has no primary key"
    source = RecordedSource(columns=columns, key=schema.key_names, comments=comments)
    return CreateTarget(table, source, may_exist=statement.if_not_exists)


# -- what removes rows -----------------------------------------------------------------------------


def truncated(context: StatementContext) -> Decision:
    table = context.statement.tables[0]
    known = context.recorded(table)
    if known is None or known.source.gone:
        return context.decided("no target yet: nothing to remove")
    policy = known.policy.truncate
    if policy == "stop":
        raise context.unsupported(
            "TRUNCATE of a captured table",
            table,
            next_step="set schema_changes.truncate: apply or keep",
        )
    change, reason = (
        TableChange(table, known, inexact=True),
        "the target keeps the rows that the source removed",
    )
    if policy == "apply":
        change, reason = _emptied(context, table, known, "truncate"), "all rows are removed"
    return context.decided(reason, [change], policy=[f"truncate={policy}"])


def _emptied(
    context: StatementContext,
    table: TableName,
    known: KnownTable,
    op: Literal["truncate", "drop_table"],
) -> TableChange:
    if known.shared:
        raise context.unsupported(f"{op} of one of several tables that share a target", table)
    step = RemoveRows(
        op=op,
        seq=str(context.place.seq),
        ts_us=context.place.ts_us,
        transaction=context.place.transaction,
    )
    return TableChange(table, known, (step,))


def _gone(context: StatementContext, table: TableName, known: KnownTable) -> TableChange:
    """The name has no table any more: the target is emptied if the policy says so, else kept."""
    gone = known.as_gone()
    if known.policy.drop_table != "apply":
        return TableChange(table, gone)
    return replace(_emptied(context, table, known, "drop_table"), known=gone)


def dropped(context: StatementContext) -> Decision:
    return _dropped(context, context.touched)


def dropped_database(context: StatementContext) -> Decision:
    """As DROP TABLE of each of its tables."""
    statement = context.statement
    if context.targets_in is None:
        raise context.unsupported(
            f"{statement.verb} `{statement.database}` may remove captured tables", None
        )
    tables = tuple(
        (statement.database, name) for name in sorted(context.targets_in(statement.database))
    )
    if not tables:
        return context.ignored("no captured table has a target in this database")
    decision = _dropped(replace(context, statement=replace(statement, tables=tables)), tables)
    return replace(decision, statement=statement)


def _dropped(context: StatementContext, tables: tuple[TableName, ...]) -> Decision:
    changes: list[TableChange] = []
    used: dict[str, None] = {}
    for table in tables:
        known = context.recorded(table)
        if known is None or known.source.gone:
            continue
        policy = known.policy.drop_table
        used[f"drop_table={policy}"] = None
        if policy == "stop":
            raise context.unsupported(
                f"{context.statement.verb} of a captured table",
                table,
                next_step="set schema_changes.drop_table: keep or apply, or remove the target",
            )
        changes.append(_gone(context, table, known))
    if not changes:
        return context.decided("no target yet: nothing to change")
    kept = [table_name(*change.table) for change in changes if not change.steps]
    said = ["all rows are removed"] if len(kept) < len(changes) else []
    said += [f"the target is kept unchanged: {', '.join(kept)}"] if kept else []
    return context.decided("; ".join(said), changes, policy=used)


# -- RENAME ----------------------------------------------------------------------------------------


def renamed(context: StatementContext, altered: Decision | None = None) -> Decision:
    """`altered`: what the ALTER TABLE does to the table before it renames it."""
    alteration = {} if altered is None else {change.table: change for change in altered.changes}
    # RENAME TABLE a TO b, b TO a: a table that has its name again was not renamed.
    came_from = {new: old for new, old in context.statement.came_from.items() if new != old}
    went_to = {old: new for new, old in came_from.items() if old is not None}
    changes: list[TableChange] = []
    said: list[str] = []
    used: dict[str, None] = {}
    swapped: set[TableName] = set()
    for table, new in went_to.items():
        known = context.target_of(table)
        if known is None or known.source.gone:
            continue
        arriving = came_from.get(table)
        if arriving is not None and _is_shadow_of(context, arriving, table):
            change = _swapped(context, table, arriving, known)
            swapped.add(table)
            said.append(f"{arriving[1]} replaces {table[1]}, with {len(change.steps)} steps")
            if change.steps or change.known != known:
                changes.append(change)
            continue
        moving = alteration.get(table, TableChange(table, known))
        moved, words, policies = _moved(
            context, known, moving, new, is_taken=arriving is not None, is_left=new in went_to
        )
        changes += moved
        said += words
        used |= dict.fromkeys(policies)
    following = {change.name for change in changes if change.name[1] and not change.is_carried}
    for carried in [change for change in changes if change.is_carried]:
        if carried.table in following:  # with a target of its own
            changes.append(TableChange(carried.table, carried.known.as_gone()))
            said.append(f"the target of {table_name(*carried.table)} is kept unchanged")
    arrivals = tuple(
        Arrival(new, source)
        for new, source in came_from.items()
        if source is not None
        and new not in swapped | following
        and context.takes_name(new)
        and not (_is_shadow_of(context, source, new) and context.recorded(new) is None)
    )
    brought = {change.table for change in changes if change.is_carried}
    said += [
        (
            f"{table_name(*arrival.before)} takes the name {table_name(*arrival.name)}, with rows "
            "that are unknown here"
        )
        for arrival in arrivals
        if arrival.before not in brought
    ]
    unchanged = "no target yet: nothing to change" if went_to else "each table has its name again"
    reason, policies = "; ".join(said) or unchanged, [*used]
    if altered is not None:
        policies = [policy for policy in (altered.ddl.policy, *used) if policy]
        if not changes or any(change.name[1] for change in changes):
            reason = f"{altered.ddl.reason}; {reason}"
        # Else the table was altered under a name that nothing captures.
        changes = changes or list(altered.changes)
    return context.decided(reason, changes, arrivals=arrivals, policy=policies)


def _moved(
    context: StatementContext,
    known: KnownTable,
    moving: TableChange,
    new: TableName,
    *,
    is_taken: bool,
    is_left: bool,
) -> tuple[list[TableChange], list[str], list[str]]:
    """Changes, reasons and policies of a table that gets the name `new`. `is_taken`: another one
    gets its name; `is_left`: the one that had the new name gets another.
    """
    table = moving.table
    policy = "follow" if known.follows else known.policy.rename_table
    changes: list[TableChange] = []
    said: list[str] = []
    used = [f"rename_table={policy}"]
    if policy == "stop":
        raise context.unsupported(
            "a captured table is renamed",
            table,
            next_step="set schema_changes.rename_table: by_name",
        )
    if policy == "by_name":
        if context.takes_name(new):
            changes.append(replace(moving, name=new, is_carried=True))
            said.append(
                f"the target of {table_name(*new)} takes over the rows of {table_name(*table)}"
            )
        if not is_taken:
            # As after DROP TABLE, whose policy `stop` does not stop a RENAME.
            gone = _gone(context, table, known)
            rows = "all rows are removed" if gone.steps else "its target is kept unchanged"
            used += ["drop_table=apply"] if gone.steps else []
            changes.append(gone)
            said.append(f"{table_name(*table)} no longer has a table: {rows}")
        return changes, said, used
    if policy == "keep":
        said = [f"the target of {table_name(*table)} is kept unchanged"]
        return [TableChange(table, known.as_gone())], said, used
    there = context.target_of(new)
    if there is not None and not there.source.gone and not is_left:
        raise context.unsupported(
            f"a captured table takes the name {table_name(*new)}, which has a target", table
        )
    if known.shape is not None and known.shape.shard_column:
        what = "a shard is renamed, but its rows are identified by its name"
        raise context.contradiction(known, table, what, "shard_value")
    said = [f"the target of {table_name(*table)} follows {table_name(*new)}"]
    return [replace(moving, name=new)], said, used


# -- shadow tables ---------------------------------------------------------------------------------


def _is_shadow_of(context: StatementContext, name: TableName, table: TableName) -> bool:
    return (
        name[0] == table[0]
        and not context.is_captured(name)
        and context.shadowed(name[1]) == table[1]
    )


def shadow_changed(context: StatementContext) -> tuple[ShadowChange, ...]:
    changes: list[ShadowChange] = []
    statement = context.statement
    renamed_away = {old for old, _ in statement.renames}
    for name in statement.tables:
        base = context.shadowed(name[1])
        table = (name[0], base)
        if not base or context.is_captured(name) or not context.is_captured(table):
            continue
        known = context.shadow(*name)
        if statement.kind in CREATES:
            doubt = ""
            if statement.kind is _K.CREATE_TABLE_LIKE and statement.reads != (table,):
                doubt = "it was created like another table"
            elif statement.kind is _K.CREATE_TABLE_SELECT or statement.if_not_exists:
                doubt = "its columns are not those of its table"
            changes.append(ShadowChange(name, Shadow(of=table_name(*table), doubt=doubt)))
        elif statement.kind is _K.DROP_TABLE or name in renamed_away:
            changes.append(ShadowChange(name, None))
        elif statement.kind is _K.ALTER_TABLE and known is not None:
            changes.append(ShadowChange(name, known.then(context.shadow_statement(table))))
        elif known is not None and statement.unique is not None:
            changes.append(
                ShadowChange(
                    name, known.model_copy(update={"doubt": "it was given a unique index"})
                )
            )
    return tuple(changes)


def _swapped(
    context: StatementContext, table: TableName, name: TableName, known: KnownTable
) -> TableChange:
    """What a shadow's statements do to its table's target. Raises UnsupportedDdlError: they are
    not known with certainty.
    """
    shadow = context.shadow(*name)
    why = ""
    if shadow is None:
        why = "its CREATE TABLE was not seen"
    elif shadow.of != table_name(*table):
        why = f"it belongs to {shadow.of}"
    elif shadow.doubt:
        why = shadow.doubt
    if shadow is None or why:
        raise context.unsupported(
            f"the shadow table {table_name(*name)} replaces a captured table: {why}", table
        )
    change, before = TableChange(table, known), context.before(*table)
    for said in shadow.statements:
        statement = replace(
            parse_statement(
                said.sql, said.database, is_mariadb=context.statement.is_mariadb, modes=said.modes
            ),
            tables=(table,),
        )
        at_swap = replace(context, statement=statement, before=lambda *_, state=before: state)
        try:
            parts = read_alteration(at_swap, change.known, shadow=True).changes
        except Unreadable as unreadable:
            raise unreadable.error from None
        except UnsupportedDdlError as error:
            error.what = f"the changes to the shadow table cannot be applied: {error.what}"
            raise
        for part in parts:
            change = replace(change, known=part.known, steps=change.steps + part.steps)
        try:
            before = None if before is None else altered(before, statement)
        except Uncertain:
            before = None
    if sum(isinstance(step, ROW_STEPS) for step in change.steps) > ROW_STEPS_MAX:
        what = f"more than {ROW_STEPS_MAX} changes to a shadow table give its rows new values"
        raise context.unsupported(what, table)
    if returns_to_earlier_columns(known.target_columns, change.steps):
        raise context.unsupported("a shadow table's columns returned to an earlier state", table)
    return change
