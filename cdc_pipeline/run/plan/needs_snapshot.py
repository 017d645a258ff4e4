"""Determine which tables need a snapshot, and which share one (K17, K19).

Rules:
- A captured table of the source needs a snapshot if one of its targets is not in the lake, is
  partial, or is suspended with a cause that catching up cannot fix.
- All source tables of a target share a snapshot, and all targets of a source table.
- A snapshot of a target that follows a renamed table under its old name (K28) fills it from the
  table of its name. If the policy wants it to follow (`rename_table: follow`), the snapshot is
  refused.
- A snapshot of merged shards is refused while the target holds rows of a shard that the source no
  longer has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import ConfigError, SnapshotError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.position.cursor import CursorState, TargetState
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import TableFilter, tables_named

_NAMED_MAX: Final = 5  # tables in one sentence


@dataclass(frozen=True, slots=True)
class TableChoice:
    """Tables that share a snapshot, sorted; `why` each target is."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    why: Mapping[str, str] | None = None


def targets_of(config: PipelineConfig, known: Collection[str]) -> set[str]:
    """Targets that the source's own tables lead to."""
    return {target for targets in _leads(config, known).values() for target in targets}


def _leads(config: PipelineConfig, known: Collection[str]) -> dict[str, list[str]]:
    routes, names = Routes(config), TableFilter(config).captured_names(list(known))
    return {name: [route.target for route in routes.of_table(name)] for name in names}


def needing(config: PipelineConfig, cut: Cut | None, known: Collection[str]) -> dict[str, str]:
    """Targets that need a snapshot, and why; `known`: the source's tables."""
    reasons: dict[str, str] = {}
    states = {} if cut is None else cut.cursor.targets
    following = [
        state
        for state in states.values()
        if state.origin is not None and not why_parted(config, state)
    ]
    moved = {state.table for state in following}
    moved |= {state.origin[1] for state in following if state.origin}
    followed = {source for state in following for source in state.source_names}
    for source, targets in _leads(config, known).items():
        if source in followed:
            continue  # by the target that it had before it was renamed
        for target in targets:
            if target in moved:
                continue
            state = states.get(target)
            parted = "" if state is None else why_parted(config, state)
            if why := parted or why_needed(state, source):
                reasons.setdefault(target, why)
    return reasons


def why_parted(config: PipelineConfig, state: TargetState) -> str:
    """Why it does not show the table of its name (K28), against the policy; "" if it does."""
    if state.origin is None:
        return ""
    source, target = state.origin
    routes = Routes(config).of_table(source)
    policies = (route.policy for route in routes if route.target == target)
    if next(policies, config.schema_changes).rename_table == "follow":
        return ""
    return (
        f"it follows {', '.join(state.source_names)}, which was once named {source}, and not "
        "the table that has this name now"
    )


def why_needed(state: TargetState | None, source: str = "") -> str:
    """Why a target needs a snapshot; "" if it does not."""
    if state is None:
        return "it is not in the lake"
    if state.suspended is not None and state.suspended.needs_snapshot:
        return "it is suspended, and catching up cannot fix it"
    if state.partial:
        return "it is partial: rows from before its first change are missing, or it was reset"
    if source and source not in state.source_names:
        return f"it lacks {source}"
    if state.table_version < 0 and state.suspended is None:
        return "it was never created"
    return ""


def suspended_still(cursor: CursorState | None) -> str:
    """Which tables may go on without a snapshot, and the command that takes one; "" without any."""
    suspended = cursor.suspended if cursor is not None else {}
    names = sorted(name for name, suspension in suspended.items() if not suspension.needs_snapshot)
    if cursor is None or not names:
        return ""
    return (
        f"suspended tables that get a snapshot only by name ({len(names)}): "
        f"{', '.join(names[:_NAMED_MAX])}{' ...' if len(names) > _NAMED_MAX else ''} "
        f"({new_snapshot(cursor.source, names[0])})"
    )


def choose(
    config: PipelineConfig, cut: Cut | None, known: Collection[str], tables: Sequence[str] | None
) -> TableChoice:
    """Those that need one, or the requested ones. ConfigError: a table is not captured, or not
    shown; SnapshotError: a target follows a renamed table.
    """
    leads = _leads(config, known)
    if tables is not None:
        tables = tables_named(config, tables, {target for to in leads.values() for target in to})
    if tables is None:
        why = needing(config, cut, known)
        sources = {name for name, targets in leads.items() if why.keys() & set(targets)}
    else:
        sources = {
            name for name, targets in leads.items() if name in tables or set(tables) & set(targets)
        }
        unknown = sorted(set(tables) - {*sources, *(t for name in sources for t in leads[name])})
        if unknown:
            raise ConfigError(
                f"no snapshot can be taken of these tables: {', '.join(unknown)}",
                setting="tables",
                expected="captured tables that the source has and the account may SELECT from",
                got=f"the source shows {', '.join(leads) or 'none'}",
                next_step="name tables as schema.table, capture them (tables.include), and "
                "GRANT SELECT on them",
            )
        why = dict.fromkeys(
            (target for name in sources for target in leads[name]), "it was requested"
        )
    sources, targets = _joined(leads, sources)
    _check_not_moved(config, cut, targets, sources)
    _check_shards(config, cut, sources, targets)
    others = dict.fromkeys(
        targets - why.keys(), "it shares a source table or a target with a table of the snapshot"
    )
    return TableChoice(tuple(sorted(sources)), tuple(sorted(targets)), {**why, **others})


def past_lost(
    config: PipelineConfig, cut: Cut | None, targets: Collection[str]
) -> dict[str, SnapshotError]:
    """Those whose rows have other masks, and a past that only a person's word gives up (K14)."""
    # Here, since it needs Arrow, which `status` does not load.
    from cdc_pipeline.targets.route_checks import changed_settings, route_of_recorded

    routes, lost = Routes(config), dict[str, SnapshotError]()
    for name in targets:
        if cut is None or name not in cut.tables:
            continue
        held, spec = cut.cursor.targets[name].suspended, cut.tables[name].spec
        route = route_of_recorded(routes, cut, name)
        is_given_up = held is not None and held.past_given_up
        if route is None or is_given_up or not MODES[spec.mode].keeps_past:
            continue
        if "masks" in changed_settings(name, spec, route.rule)[0]:
            lost[name] = SnapshotError(
                "its masks changed, and a snapshot would lose its past",
                table=name,
                expected="masks as those of its rows, or a person's word",
                next_step="rebuild it from the log, or give its past up: `cdc-pipeline remask "
                f"{cut.cursor.source} --table {quote(route.source)}` says how",
            )
    return lost


def apart_from(config: PipelineConfig, chosen: TableChoice, sources: Collection[str]) -> list[str]:
    """The chosen targets that would be read without any of `sources`."""
    leads = _leads(config, chosen.sources)
    _, targets = _joined(leads, leads.keys() & set(sources))
    return sorted(set(chosen.targets) - targets)


def joining(
    config: PipelineConfig, known: Collection[str], sources: Collection[str]
) -> dict[str, str]:
    """A table for each target that others than `sources` lead to, too."""
    leads = _leads(config, known)
    return {target: name for name, to in leads.items() if name not in sources for target in to}


def _joined(leads: Mapping[str, Sequence[str]], sources: set[str]) -> tuple[set[str], set[str]]:
    while True:
        targets = {target for name in sources for target in leads[name]}
        grown = {name for name, of in leads.items() if targets & set(of)}
        if grown == sources:
            return sources, targets
        sources = grown


def _check_not_moved(
    config: PipelineConfig, cut: Cut | None, targets: Collection[str], sources: Collection[str]
) -> None:
    states = {} if cut is None else cut.cursor.targets
    moved = sorted(
        name
        for name, state in states.items()
        if state.origin is not None
        and not why_parted(config, state)
        and (name in targets or set(state.source_names) & set(sources))
    )
    if moved:
        raise SnapshotError(
            f"{moved[0]} follows a table that was renamed to "
            f"{', '.join(states[moved[0]].source_names)}",
            table=moved[0],
            expected="a target that follows the table with its source table's name",
            next_step="give the renamed table a rule with the target's name (targets, "
            "`name`), or exclude it, run once and include it again: it starts under "
            "its new name, and then gets its snapshot",
        )


def _check_shards(
    config: PipelineConfig, cut: Cut | None, sources: Collection[str], targets: Collection[str]
) -> None:
    """Refuse a snapshot that would silently remove the rows of a shard whose table is gone."""
    routes, states = Routes(config), {} if cut is None else cut.cursor.targets
    for name in sorted(targets):
        leading = next(
            route for source in sources for route in routes.of_table(source) if route.target == name
        )
        gone = sorted(set(states[name].source_names) - set(sources)) if name in states else []
        is_merged = leading.rule.shard_column is not None
        if not gone or not is_merged or leading.policy.drop_table == "apply":
            continue
        raise SnapshotError(
            f"{name} holds rows of {', '.join(gone)}, which the source no longer has: a snapshot "
            "would remove them",
            table=name,
            expected="all source tables of the target",
            got=", ".join(sorted(sources)),
            next_step="give the rule of the target `schema_changes: {drop_table: apply}` to "
            "remove rows of dropped tables; or give it another `name`: the current "
            "target stays as it is, and the new one gets its own",
        )
