"""Decide which target takes over another's rows when a table is renamed (K28).

Rules:
- Both are kept by the same rule, names aside, and that rule made the rows. So they are what the new
  name's target would hold if it had followed the table from the beginning.
- A target that several tables share takes over nothing, and gives nothing away: its rows are
  identified by their names.
- A history or a changelog of another table never becomes that of this one. It goes to a name that
  has none; else the name needs a snapshot, which ends the one and begins the other by the rules of
  the mode (`SinkMode.replaced_sql`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.routes import Route
from cdc_pipeline.targets.shape import recorded_shape

_NAMING = {"tables", "except_", "name", "schema_changes"}


def heir(
    route: Route, origin: Target, routes: Sequence[Route], targets: Mapping[str, Target]
) -> Route | None:
    """Whose target takes over the rows of `origin`, at `route`'s old name; None if none does."""
    if (
        origin.is_new
        or origin.state.table_version < 0
        or set(origin.spec.sources) != {route.source}
    ):
        return None
    if (
        origin.spec.sources[route.source].gone
        or origin.state.origin is not None
        or route.rule.shard_column
    ):
        return None
    alike = [
        other for other in routes if _is_same(other.rule, route.rule) and _fits(other.rule, origin)
    ]
    alike.sort(key=lambda other: other.number != route.number)
    return next(
        (other for other in alike if _may_take(targets.get(other.target), origin, other)), None
    )


def _is_same(rule: TargetRule, other: TargetRule) -> bool:
    return rule.model_dump(exclude=_NAMING) == other.model_dump(exclude=_NAMING)


def _fits(rule: TargetRule, origin: Target) -> bool:
    return recorded_shape(rule) == origin.spec.shape


def _may_take(there: Target | None, origin: Target, route: Route) -> bool:
    if there is None:
        return True
    if there.state.origin is not None or not set(there.spec.sources) <= {route.source}:
        return False
    spec, other = there.spec, origin.spec
    if MODES[spec.mode].marks_deleted_rows:
        return (spec.mode, spec.key) == (other.mode, other.key)
    return not MODES[spec.mode].keeps_past
