"""Check the rules under `targets` against each other, known tables, records and the lake.

Rules:
- All mistakes are reported at once, each with its path in the file.
- A target's mode and shape are fixed by its existing rows. A rule that differs now needs a new
  target, or a new snapshot of the old one. Only `cluster_by`, which affects the layout of files,
  may change; it applies to tables created afterwards. So may masks of columns that neither the
  target nor its sources have, and masks of a target whose tables were dropped: it gets no row.
- Columns are checked if they are known: those of recorded tables. The rest is checked at a table's
  first rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from shlex import quote

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import CdcError, ConfigError, LakeStateError, SchemaError, SinkError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.schema.target_spec import RecordedShape, TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.log import LOG_FOLDER
from cdc_pipeline.sink.delta.table_log import SOURCE_PROPERTY, read_table_log
from cdc_pipeline.targets.masks import mask_of
from cdc_pipeline.targets.routes import Route, Routes
from cdc_pipeline.targets.shape import recorded_shape, shape_table
from cdc_pipeline.targets.shared import shared_targets
from cdc_pipeline.targets.table_filter import pattern_names
from cdc_pipeline.text.table_names import TablePattern, split_table_name

# Columns and key of each source table.
Columns = Mapping[str, tuple[tuple[TargetColumn, ...], tuple[str, ...]]]

_NAME_OR_FOLDER = (
    "give the rule another `name`; or move the target's folder away and take a new snapshot"
)
_REMASK = (
    "apply them to the rows that are there: `cdc-pipeline remask {source} --table {table}`; or "
    "restore the earlier ones, or give the rule another `name`"
)
_RESTORE = (
    "restore the earlier ones: the target follows a renamed table, and nothing brings its rows "
    "again; or give the rule another `name`"
)


def join_shard(route: Route, shaped: TargetSpec, there: TargetSpec) -> None:
    """ConfigError: the tables are not told apart; SchemaError: their columns differ."""
    others = list(there.sources)
    if route.rule.shard_column is None:
        raise _not_merged(route, others)
    for other in others:
        if route.rule.shard_of(*split_table_name(other)) == route.shard:
            raise _same_shard(route, other)
    here = {column.name.lower(): column.delta_type for column in there.columns}
    new = {column.name.lower(): column.delta_type for column in shaped.columns}
    differences = [
        f"`{name}` is {here.get(name, 'absent')} in the target and {new.get(name, 'absent')} here"
        for name in sorted(here.keys() | new.keys())
        if here.get(name) != new.get(name)
    ]
    if [name.lower() for name in there.key] != [name.lower() for name in shaped.key]:
        differences.append(
            f"the key is ({', '.join(there.key)}) in the target and ({', '.join(shaped.key)}) here"
        )
    if differences:
        raise SchemaError(
            f"{route.source} cannot join target {route.target}: " + "; ".join(differences),
            table=route.source,
            setting=route.setting,
            expected=f"the columns of {', '.join(others)}",
            next_step="give the shards the same columns; exclude those that differ (columns), "
            "or set types that hold both; or exclude the table from the rule "
            "(except)",
        )


def _not_merged(route: Route, others: list[str]) -> ConfigError:
    return ConfigError(
        f"{route.source} and {', '.join(others)} lead to the same target {route.target}",
        table=route.source,
        setting=route.setting if route.number >= 0 else "targets",
        expected="a separate target for each table, or one rule with shard_column that merges them",
        next_step="give their rules other names, or use one rule with a `shard_column`",
    )


def _same_shard(route: Route, other: str) -> ConfigError:
    return ConfigError(
        f"{route.source} and {other} are the same shard {route.shard!r} of target {route.target}",
        table=route.source,
        setting=f"{route.setting}.shard_value",
        expected="a different value for each table",
        next_step="use {schema}, {table} or both, so that no two tables have the same value",
    )


def check_recorded(routes: Routes, cut: Cut) -> None:
    """ConfigError: mode or shape of targets that go on without a snapshot have changed."""
    _raise_all(_changed(routes, cut))


def check_routes(config: PipelineConfig, tables: Collection[str], cut: Cut | None) -> None:
    """ConfigError, with all mistakes; LakeStateError: the lake cannot be written."""
    routes = Routes(config)
    errors: list[CdcError] = []
    by_target: dict[str, list[Route]] = {}
    for table in sorted(tables):
        try:
            of_table = routes.of_table(table)
        except ConfigError as error:
            errors.append(error)
            continue
        for route in of_table:
            by_target.setdefault(route.target, []).append(route)
    errors += filter(None, map(_sharing, by_target.values()))
    if cut is not None:
        errors += _changed(routes, cut)
        errors += _misfits(config, routes, columns_of_cut(cut, tables))
    recorded = cut.cursor.targets.keys() if cut is not None else set()
    if not by_target or by_target.keys() - recorded:
        taken = [*_taken_by_others(config, by_target.keys() - recorded)]
        errors += taken or shared_targets(config, cut, tables)
    _raise_all(errors)
    if isinstance(config.sink.lake_path, Path):
        _check_writable(config.sink.lake_path)


def _taken_by_others(config: PipelineConfig, targets: Collection[str]) -> Iterator[CdcError]:
    paths = LakePaths.of(config)
    for name in sorted(targets):
        owner = _owner(paths, name)
        if owner not in ("", config.name):
            yield ConfigError(
                f"target {name} belongs to source {owner}: only one source may write a table of "
                "the lake",
                table=name,
                setting="targets",
                expected=f"a target that no other source of the lake {config.sink.lake_path} has",
                got=f"the Delta table of {owner}",
                next_step="give this source its own lake (sink.lake_path), give the target another "
                "`name` in a rule under targets, or exclude the table (tables.exclude)",
            )


def _owner(paths: LakePaths, target: str) -> str:
    try:
        place = paths.table(target)
        log = read_table_log(place) if (place / LOG_FOLDER).is_dir() else None
    except SinkError:
        return ""  # the run meets it when it creates the target, and reports it
    return "" if log is None else log.properties.get(SOURCE_PROPERTY, "")


def _sharing(routes: list[Route]) -> CdcError | None:
    first, *others = routes
    for route in others:
        if route.rule.shard_column is None or route.number != first.number:
            return _not_merged(route, [first.source])
    of_shards: dict[str, Route] = {}
    for route in routes:
        other = of_shards.setdefault(route.shard, route)
        if other is not route:
            return _same_shard(route, other.source)
    return None


def _changed(routes: Routes, cut: Cut) -> Iterator[CdcError]:
    for name in sorted(cut.tables):
        suspension = cut.cursor.targets[name].suspended
        if suspension is not None and suspension.needs_snapshot:
            continue  # it gets no row before its new snapshot, by the present rule
        if (error := changed_rule(routes, cut, name)) is not None:
            yield error


def changed_rule(routes: Routes, cut: Cut, name: str) -> CdcError | None:
    """Why a target of a cut gets no row by its present rule but in a new table."""
    route, spec = route_of_recorded(routes, cut, name), cut.tables[name].spec
    if route is None:
        return None
    differs, _ = changed_settings(name, spec, route.rule)
    only_masks, follows = differs.keys() == {"masks"}, cut.cursor.targets[name].origin is not None
    if not differs or (only_masks and all(one.gone for one in spec.sources_of(name).values())):
        return None
    next_step = _NAME_OR_FOLDER
    if only_masks:
        next_step = _RESTORE if follows else _REMASK
    return ConfigError(
        f"the rows of target {name} were written under another rule: {', '.join(differs)} changed",
        table=route.source,
        setting=", ".join(f"{route.setting}.{setting}" for setting in differs),
        expected="; ".join(f"{setting}: {before}" for setting, (before, _) in differs.items()),
        got="; ".join(f"{setting}: {after}" for setting, (_, after) in differs.items()),
        next_step=next_step.format(source=cut.cursor.source, table=quote(route.source)),
    )


def route_of_recorded(routes: Routes, cut: Cut, name: str) -> Route | None:
    """A renamed table's target is still that of the rule under which it began."""
    spec, origin = cut.tables[name].spec, cut.cursor.targets[name].origin
    leads_to, sources = (
        (name, list(spec.sources_of(name))) if origin is None else (origin[1], [origin[0]])
    )
    leading = routes.sources_of(leads_to, sources)[:1]
    return next(
        (one for source in leading for one in routes.of_table(source) if one.target == leads_to),
        None,
    )


def changed_settings(
    name: str, spec: TargetSpec, rule: TargetRule
) -> tuple[dict[str, tuple[str, str]], tuple[dict[str, str], dict[str, str]]]:
    """Texts before and after, by setting; and the masks, which count where such a column is."""
    before, after = (
        shape.model_copy(update={"masks": spec.masks_of(name, shape.masks)})
        for shape in (spec.shape or RecordedShape(), recorded_shape(rule) or RecordedShape())
    )
    return _differences(before, after), (before.masks, after.masks)


def with_present_masks(routes: Routes, cut: Cut, name: str) -> TargetSpec:
    """What is recorded of a target; a column that comes has the present mask from the first."""
    spec, route = cut.tables[name].spec, route_of_recorded(routes, cut, name)
    now = None if route is None else recorded_shape(route.rule)
    if route is None or now == spec.shape or changed_rule(routes, cut, name) is not None:
        return spec
    masks = {} if now is None else now.masks
    shape = (spec.shape or RecordedShape()).model_copy(update={"masks": masks})
    return spec.model_copy(update={"shape": shape if shape != RecordedShape() else None})


def _differences(before: RecordedShape, after: RecordedShape) -> dict[str, tuple[str, str]]:
    differences = {}
    for setting in RecordedShape.model_fields:
        old, new = getattr(before, setting), getattr(after, setting)
        if old == new or setting == "cluster_by":
            continue
        if setting == "masks":
            # Salts are compared by the hash of a fixed text, which is not shown.
            old, new = (
                {name: mask.split(":")[0] for name, mask in masks.items()} for masks in (old, new)
            )
            if old == new:
                old, new = "as recorded", "a different salt, length or value"
        path = "columns" if setting in ("include", "exclude") else setting
        differences[path] = (str(old), str(new))
    return differences


def check_named_columns(config: PipelineConfig, known: Columns) -> None:
    """A masked or retyped column is in a table of its rule, if all are known; else ConfigError."""
    _raise_all(_unknown_columns(config, Routes(config), known))


def columns_of_cut(cut: Cut, tables: Collection[str]) -> Columns:
    """Columns and keys of those tables that a cut has."""
    return {
        source: (recorded.columns, recorded.key)
        for name, table in cut.tables.items()
        for source, recorded in table.spec.sources_of(name).items()
        if source in tables and not recorded.gone
    }


def check_columns(config: PipelineConfig, known: Columns) -> None:
    """Raise ConfigError, with all mistakes, unless the rules fit the present columns and keys."""
    _raise_all(_misfits(config, Routes(config), known))


def check_places(
    config: PipelineConfig, tables: Collection[str], *, paths: LakePaths, ours: Collection[str]
) -> None:
    """LakeStateError: another table is where a target that is not `ours` would be created."""
    routes = Routes(config)
    targets = {route.target for table in tables for route in _routes_or_none(routes, table)} - set(
        ours
    )
    _raise_all(_other_tables(paths, targets))


def _other_tables(paths: LakePaths, targets: Collection[str]) -> Iterator[CdcError]:
    next_step = "move that table away, or give the target another `name`"
    for name in sorted(targets):
        try:
            log = read_table_log(paths.table(name))
        except LakeStateError as error:  # there is nothing of ours to restore, or to read again
            error.table, error.next_step = name, next_step
            yield error
            continue
        if log is not None:
            owner = log.properties.get(SOURCE_PROPERTY)
            yield LakeStateError(
                f"another Delta table is where target {name} belongs",
                table=name,
                expected="nothing there, or the last cut's own target",
                got=f"a table of source {owner}, version {log.version}"
                if owner
                else "a table without _cdc properties",
                next_step=next_step,
            )


def _misfits(config: PipelineConfig, routes: Routes, known: Columns) -> Iterator[CdcError]:
    for source, (columns, key) in sorted(known.items()):
        of_source = _routes_or_none(routes, source)
        checks: list[Callable[[], object]] = [
            *(partial(shape_table, route, columns, key) for route in of_source),
            *(partial(mask_of, of_source, column.name) for column in columns),
        ]
        for check in checks:
            try:
                check()
            except ConfigError as error:
                yield error
    yield from _unknown_columns(config, routes, known)


def _unknown_columns(config: PipelineConfig, routes: Routes, known: Columns) -> Iterator[CdcError]:
    """Columns that a rule names and none of its tables has, if all are known by name."""
    names = pattern_names(config)
    for number, rule in enumerate(config.targets):
        of_rule = [
            columns
            for source, (columns, _) in known.items()
            if any(route.number == number for route in _routes_or_none(routes, source))
        ]
        if not of_rule or not all(
            TablePattern.parse(text, names).exact in known for text in rule.tables
        ):
            continue
        existing = {column.name.lower() for columns in of_rule for column in columns}
        for setting, named in (("masks", rule.masks), ("types", rule.types)):
            for name in named:
                if name.lower() not in existing:
                    yield ConfigError(
                        f"no table of the rule has a column {name}",
                        setting=f"targets.{number}.{setting}.{name}",
                        expected=f"one of {', '.join(sorted(existing))}",
                        next_step="write the column's name as at the source, or remove it",
                    )


def _routes_or_none(routes: Routes, source: str) -> tuple[Route, ...]:
    try:
        return routes.of_table(source)
    except ConfigError:
        return ()


def _check_writable(lake: Path) -> None:
    place = next((folder for folder in (lake, *lake.parents) if folder.exists()), lake)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise LakeStateError(
            f"the lake cannot be written: {lake}",
            setting="sink.lake_path",
            expected=f"a folder that this user may write to at {place}",
            got="a file" if not place.is_dir() else "no permission to write",
            next_step="choose another sink.lake_path, or grant the permission",
        )


def _raise_all(errors: Iterable[CdcError]) -> None:
    if not (found := list(errors)):
        return
    if len(found) == 1:
        raise found[0]
    lines = list(dict.fromkeys(f"{error.setting or 'targets'}: {error.what}" for error in found))
    kind = ConfigError if any(isinstance(error, ConfigError) for error in found) else type(found[0])
    raise kind(
        f"{len(found)} mistakes in the rules of targets:\n"
        + "\n".join(f"  {line}" for line in lines),
        setting="targets",
        next_step="\n  ".join(dict.fromkeys(error.next_step for error in found if error.next_step)),
    )
