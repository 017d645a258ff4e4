"""Choose the key that a target finds rows by, and the mode of a table without a key.

Rules, in this order:
- A changelog needs no key.
- The rule's own `key`. Nothing proves that it is unique at the source: two rows with one key would
  be one row here.
- The key that the source names: its primary key or, if there is none, the first unique key without
  nullable columns, which both servers log in its place. When that key is dropped, the next table
  map says so, and the target stops (K13).
- None of these: the rule's `keyless` decides. A changelog by default, so that nothing is lost and
  nothing stops.
- The choice is recorded with the target, and is final: another mode or key in the configuration
  stops the target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.config.modes import MODES, Mode, is_keyless_mirror
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import CdcError, ConfigError, IncompleteRowsError, SchemaError
from cdc_pipeline.schema.target_spec import RecordedSource, shard_key
from cdc_pipeline.schema.types import TargetColumn, keyless
from cdc_pipeline.sink.modes.expand import check_images
from cdc_pipeline.sink.target import Target

SOURCE_KEY: Final = "the source's key: primary, or else unique and never NULL"


@dataclass(frozen=True, slots=True)
class Identity:
    mode: Mode
    key: tuple[str, ...]
    why: str


def identity_of(
    rule: TargetRule,
    *,
    source: str,
    columns: tuple[str, ...],
    source_key: tuple[str, ...],
) -> Identity:
    """ConfigError: the rule names other columns; KeylessTableError; as `check_reserved`."""
    for setting, named in (("key", rule.key), ("track", rule.track)):
        if any(name not in columns for name in named):
            raise _unknown(ConfigError, setting, named, columns, source=source)
    check_reserved(rule.mode, columns, source=source)
    of_rule = identity_by_rule(rule)
    if of_rule is not None:
        return of_rule
    if source_key:
        return Identity(rule.mode, source_key, SOURCE_KEY)
    if rule.keyless == "stop":
        raise keyless(source)
    if rule.keyless == "row_hash":
        return Identity(
            "mirror", (), "all values of a row, with multiplicity: the table has no key"
        )
    return Identity(
        "changelog",
        (),
        f"the table has no key to identify the rows of a {rule.mode}, so every change is kept",
    )


def _unknown(
    error: type[CdcError],
    setting: str,
    named: Iterable[str],
    columns: Collection[str],
    *,
    source: str,
) -> CdcError:
    unknown = ", ".join(name for name in named if name not in columns)
    return error(
        f"the rule of {source} names columns that it does not have: {unknown}",
        table=source,
        setting=f"targets.{setting}",
        expected=f"among {', '.join(columns)}",
        next_step="correct the rule, or give the table its own rule",
    )


def tracked_by(
    rule: TargetRule, of: RecordedSource, columns: Collection[TargetColumn], *, source: str
) -> tuple[str, ...]:
    """The columns of a history's target whose changes begin a version; () for all. SchemaError: a
    statement or the rule has taken one away.
    """
    names, there = dict(of.names), {column.name for column in columns}
    named = ((column.name, names.get(column.name, column.name)) for column in of.columns)
    taken = {name: target for name, target in named if target in there}
    if any(name not in taken for name in rule.track):
        raise _unknown(SchemaError, "track", rule.track, taken, source=source)
    return tuple(taken[name] for name in rule.track)


def identity_by_rule(rule: TargetRule) -> Identity | None:
    """Of a new target, whatever key its source table has; None if that decides."""
    if not MODES[rule.mode].has_key:
        return Identity(rule.mode, (), f"a {MODES[rule.mode].label} needs no key")
    if rule.key:
        return Identity(rule.mode, rule.key, "the rule's key; its uniqueness is not checked")
    return None


def check_reserved(mode: Mode, columns: Iterable[str], *, source: str) -> None:
    """Raise SchemaError if a source column has a name that belongs to the target's mode."""
    spec = MODES[mode]
    taken = [name for name in columns if name.lower() in spec.reserved_columns]
    if taken:
        raise SchemaError(
            f"column `{taken[0]}` has a name that is reserved in a {spec.label}",
            table=source,
            setting="targets.mode",
            next_step="rename the column at the source, choose another mode for this table, or add "
            "the table to tables.exclude",
        )


def check_recorded(
    rule: TargetRule,
    *,
    target: str,
    mode: Mode,
    key: tuple[str, ...],
    source: str,
    source_key: tuple[str, ...],
) -> None:
    """ConfigError unless rule and record agree; `source_key`: of when the target was made."""
    has_key = MODES[mode].has_key
    # `keyless` may name a mode
    for_want_of_a_key = not has_key and not source_key and rule.keyless == mode
    fits_mode = for_want_of_a_key or (
        mode == rule.mode and (not is_keyless_mirror(mode, key) or rule.keyless == "row_hash")
    )
    if fits_mode and (not rule.key or not has_key or set(rule.key) == set(key)):
        return
    raise ConfigError(
        f"{target} is a {mode} by ({', '.join(key)}) in the lake, but its rule now says otherwise",
        table=source,
        setting="targets",
        expected=f"mode: {mode}" + (f", key: [{', '.join(key)}]" if key else ""),
        got=f"mode: {rule.mode}" + (f", key: [{', '.join(rule.key)}]" if rule.key else ""),
        next_step="give the rule another `name`: a target of that mode is then "
        "created beside this one",
    )


def check_key_images(target: Target, rows: DecodedRows) -> None:
    """IncompleteRowsError: images or table lack columns that the target finds rows by."""
    if not MODES[target.spec.mode].has_key:
        return
    recorded = target.spec.sources.get(rows.schema.full_name)
    names = dict(recorded.names) if recorded is not None else {}
    here = {names.get(name, name): name for name in rows.schema.column_names}
    key = [name for name in target.spec.key if name not in shard_key(target.spec.shape)]
    gone = [name for name in key if name not in here]
    if gone:
        raise IncompleteRowsError(
            f"the table no longer has the columns of the target's key: {', '.join(gone)}",
            table=rows.schema.full_name,
            setting="targets.key",
            expected=f"the key ({', '.join(key)})",
            next_step="give the target's rule another `key` and another `name`",
        )
    check_images(rows, tuple(here[name] for name in key))
