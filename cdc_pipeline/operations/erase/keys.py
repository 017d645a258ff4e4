"""Find the keys whose rows are to be erased, as the log has them and as each target does.

Rules:
- Values come as text and are values of the table's own types, or refused; they are never SQL (K20).
- A condition on other columns finds keys in every row that a target holds: of the past, deleted,
  and in both images of a change. Keys that targets hold masked cannot be found so.
- Every table of the last cut is a target that holds the table's rows, or did under an earlier name.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_of_delta
from cdc_pipeline.binlog.value_text import hashed, text_of, value_of
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.target_config import HashMask
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.erasures import (
    Erasure,
    KeyBound,
    KeyNames,
    NameBound,
    digests_of,
    stretches,
)
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.schema.history.history import (
    DROPPED,
    KEPT_FOR_ITS_NAME,
    Origin,
    SchemaHistory,
    Version,
)
from cdc_pipeline.schema.target_spec import RecordedSource, TargetSpec
from cdc_pipeline.sink.apply.erase import BOUND_COLUMN, value_sql
from cdc_pipeline.sink.modes.mode_columns import BEFORE_COLUMN
from cdc_pipeline.sink.spark.sql import quoted, table_at
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.masks import mask_key, mask_of
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import split_table_name

KEYS_MAX: Final = 1_000

Key = tuple[str, ...]  # texts in the order of the key, bytes in hex


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where a target holds the key of one source table: `columns` in the key's order, and of a
    shard the column and value that tell its rows from others'. Rows from `bound` on, a seq, are
    another table's of that name.
    """

    target: Target
    columns: tuple[str, ...]
    bound: int
    shard: tuple[str, str] | None = None

    @property
    def spec(self) -> TargetSpec:
        return self.target.spec

    def table(self, keys: Sequence[pa.Array]) -> pa.Table:
        """Keys as this target holds them, as texts."""
        texts = {name: _texts(keys[at]) for at, name in enumerate(self.columns)}
        if self.shard is not None:
            texts[self.shard[0]] = [self.shard[1]] * len(keys[0])
        texts[BOUND_COLUMN] = [str(self.bound)] * len(keys[0])
        return pa.table({name: pa.array(column, pa.string()) for name, column in texts.items()})


def read_keys(file: Path) -> tuple[dict[str, str], ...]:
    """Of a file with one key a line. Raises ConfigError."""
    keys = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        raise _unreadable(file, "the keys cannot be read") from None
    for number, line in enumerate(lines, 1):
        try:
            key = json.loads(line) if line.strip() else {}
        except ValueError:
            key = None
        if not isinstance(key, dict):
            raise _unreadable(file, f"line {number} is no JSON object")
        keys.append({name: str(value) for name, value in key.items()})
    return tuple(key for key in keys if key)


def _unreadable(file: Path, what: str) -> ConfigError:
    return ConfigError(
        what,
        setting="keys",
        expected='a key on each line, such as {"id": 7}',
        got=str(file),
        next_step="correct the file",
    )


class TableKeys:
    """Keys of one source table, `table`, and the places that hold them under any of `names`.

    Raises ConfigError: the table has no target or no key, or a target lacks the key.
    """

    def __init__(
        self,
        targets: Targets,
        table: str,
        names: Mapping[str, NameBound],
        *,
        key: KeyNames | None = None,
        earlier: Callable[[tuple[str, ...]], tuple[KeyBound, ...]] = lambda _: (),
    ) -> None:
        """`key`: of an earlier erasure, as the table calls it now; `earlier` names of the key."""
        self.table, self._targets, self._names = table, targets, names
        holding = [
            (target, source)
            for target in targets.by_name.values()
            for source in target.spec.sources
            if source in names
        ]
        known = [target.spec.sources[source] for target, source in holding if source == table]
        if not known or not known[0].key:
            raise ConfigError(
                f"rows of {table} cannot be erased by key",
                table=table,
                setting="table",
                expected="a captured table with a primary key",
                got="no primary key" if known else "no target that holds it",
                next_step="name a source table as schema.table; of a table without a key take a "
                "new snapshot when the rows are gone",
            )
        self.source, self.earlier = known[0], earlier(known[0].key)
        self._key = key or KeyNames(self.source.key, is_known=True)
        self.places = [self._place(target, source) for target, source in holding]

    def _place(self, target: Target, source: str) -> KeyPlace:
        of, shape = target.spec.sources[source], target.spec.shape
        renamed = dict(of.names)
        called = self._key
        if source != self.table:
            called, _ = next(stretches(self._names[source], called.names, self.earlier))
        key = called.among([column.name for column in of.columns], of.key) or ()
        columns = tuple(renamed.get(name, name) for name in key)
        retyped = {} if shape is None else shape.types
        if (
            not columns
            or not set(columns) <= {column.name for column in target.spec.columns}
            or any(name.lower() in retyped for name in key)
        ):
            raise ConfigError(
                f"{target.name} does not hold the key of {source} as it is",
                table=target.name,
                expected=", ".join(self.source.key),
                next_step="take a new snapshot of the table when the rows are gone at the source",
            )
        shard = None
        if shape is not None and shape.shard_column:
            route = self._targets.route_of(source, target.name)
            shard = (shape.shard_column, shape.shard_value if route is None else route.shard)
        return KeyPlace(target, columns, self._names[source].place, shard)

    # -- keys --------------------------------------------------------------------------------------

    @property
    def _types(self) -> list[pa.DataType]:
        by_name = {column.name: column.delta_type for column in self.source.columns}
        return [arrow_of_delta(by_name[name]) for name in self.source.key]

    def parsed(self, given: Sequence[Mapping[str, str]]) -> list[Key]:
        """Keys that are given whole. Raises ConfigError."""
        keys = []
        for key in given:
            if set(key) != set(self.source.key):
                raise _no_key(self.table, self.source.key, list(key))
            keys.append(tuple(key[name] for name in self.source.key))
        self.arrays(keys)
        return keys

    def arrays(self, keys: Sequence[Key]) -> list[pa.Array]:
        """As the log has them, by column of the key."""
        arrays = []
        for at, (name, type_) in enumerate(zip(self.source.key, self._types, strict=True)):
            values = [None if type_ is None else value_of(key[at], type_) for key in keys]
            if None in values:
                raise _no_key(self.table, [f"{name}: {type_}"], [name])
            arrays.append(pa.array([value.as_py() for value in values if value is not None], type_))
        return arrays

    def masked(self, arrays: Sequence[pa.Array]) -> list[pa.Array]:
        """As all targets hold them."""
        routes = self._targets.routes_of(self.table)
        masks = [mask_of(routes, name) for name in self.source.key]
        return [
            hashed(array, mask_key(mask)) if isinstance(mask, HashMask) else array
            for array, mask in zip(arrays, masks, strict=True)
        ]

    def by_target(self, keys: Sequence[Key]) -> list[tuple[Target, pa.Table]]:
        """Keys as each target holds them; of a shard under each name that it had."""
        masked, tables = self.masked(self.arrays(keys)), dict[str, tuple[Target, pa.Table]]()
        for place in self.places:
            of_place, name = place.table(masked), place.target.name
            if name in tables:
                of_place = pa.concat_tables([tables[name][1], of_place])
            tables[name] = place.target, of_place
        return list(tables.values())

    def digests(self, arrays: Sequence[pa.Array], salt: str) -> tuple[str, ...]:
        return tuple(sorted(set(digests_of(arrays, bytes.fromhex(salt)).to_pylist())))

    # -- rows --------------------------------------------------------------------------------------

    def found(self, session: Any, paths: LakePaths, where: Mapping[str, str]) -> list[Key]:
        """The keys of all rows with these values, in any target and image. Raises ConfigError."""
        routes = self._targets.routes_of(self.table)
        if any(mask_of(routes, name) is not None for name in self.source.key):
            raise ConfigError(
                "targets hold the key masked: it cannot be found by other columns",
                table=self.table,
                setting="where",
                expected=", ".join(self.source.key),
                next_step="give the key itself, as the source has it",
            )
        keys: set[Key] = set()
        is_known = False
        for place in self.places:
            of = place.spec.sources.get(self.table, self.source)
            for image in _images(place.spec):
                statement = _keys_sql(paths, place, of, where, image)
                if statement is not None:
                    is_known = True
                    rows = session.sql(statement).toArrow()
                    texts = [_texts(column.combine_chunks()) for column in rows.columns]
                    keys.update(key for key in zip(*texts, strict=True) if None not in key)
        if not is_known:
            columns = [column.name for column in self.source.columns]
            raise _no_key(self.table, columns, list(where))
        return sorted(keys)


def _images(spec: TargetSpec) -> list[str]:
    return ["t", f"t.{BEFORE_COLUMN}"] if MODES[spec.mode].rows_are_changes else ["t"]


def _keys_sql(
    paths: LakePaths, place: KeyPlace, of: RecordedSource, where: Mapping[str, str], image: str
) -> str | None:
    types = {column.name: column.delta_type for column in place.spec.columns}
    renamed = dict(of.names)
    values = {renamed.get(name, name): text for name, text in where.items()}
    if not set(values) <= set(types):
        return None
    for name, text in values.items():
        type_ = arrow_of_delta(types[name])
        if type_ is None or value_of(text, type_) is None:
            raise _no_key(place.target.name, [f"{name}: {types[name]}"], [name])
    if place.shard is not None:
        values[place.shard[0]] = place.shard[1]
    conditions = " AND ".join(
        f"{image}.{quoted(name)} = {value_sql(text, types[name])}" for name, text in values.items()
    )
    columns = ", ".join(f"{image}.{quoted(name)} AS k{at}" for at, name in enumerate(place.columns))
    path = paths.table(place.target.name)
    return f"SELECT DISTINCT {columns} FROM {table_at(path)} AS t WHERE {conditions}"


def _texts(array: pa.Array) -> list[str | None]:
    texts = text_of(array).to_pylist()
    return [one.hex() if isinstance(one, bytes) else one for one in texts]


def earlier_names(
    history: SchemaHistory, table: str, *, until: NameBound, given: Collection[str] = ()
) -> dict[str, NameBound]:
    """Each name that the table had: what the schema history shows of RENAME, and names that are
    given for what it has forgotten. Raises ConfigError: it is not known until when a given name was
    the table's.
    """
    names: dict[str, NameBound] = {}
    for name, bound in reversed(_names_through(history, table, until)):
        names[name] = bound.model_copy(update={"before": names.get(name)})
    return names | {one: _bound_of(history, one, table, until) for one in given if one not in names}


def _names_through(
    history: SchemaHistory, table: str, until: NameBound
) -> list[tuple[str, NameBound]]:
    """What RENAME shows, newest first; a table may get a name again that it had."""
    names = [(table, until)]
    while True:
        name, bound = names[-1]
        begun = [
            version
            for version in history.versions(*split_table_name(name))
            if version.renamed_from and version.place < bound.place
        ]
        if not begun:
            return names
        begin = {"since": str(begun[-1].place), "since_us": begun[-1].time_us}
        names[-1] = name, bound.model_copy(update=begin)
        before = NameBound(seq=str(begun[-1].place), time_us=begun[-1].time_us)
        names.append((begun[-1].renamed_from, before))


def earlier_keys(
    history: SchemaHistory, table: str, key: tuple[str, ...], *, at: NameBound
) -> tuple[KeyBound, ...]:
    """What a key's columns were called, newest first, where the history knows it: back from `at`
    through the names that the table had.
    """
    bounds = [KeyBound(key=key, seq=at.seq, time_us=at.time_us)]

    def add(place: int, time_us: int, *, is_known: bool) -> None:
        time_us = time_us if time_us >= 0 else bounds[-1].time_us
        bounds.append(KeyBound(key=key, seq=str(place), time_us=time_us, is_known=is_known))

    after = at.model_copy(update={"seq": str(at.place + 1)})
    for name, bound in _names_through(history, table, after):
        versions = history.versions(*split_table_name(name))
        for version in reversed(versions):
            if int(bound.since) <= version.place < bound.place:
                key, is_known = version.names_before(key), _goes_on(version, versions[0])
                if "" in key:
                    key, is_known = (), True
                if key != bounds[-1].key or not is_known:
                    add(version.place, version.time_us, is_known=is_known)
                if not is_known or not key:
                    return tuple(bounds)
    add(min(bound.place, at.place), bound.time_us, is_known=False)
    return tuple(bounds)


def _goes_on(version: Version, first: Version) -> bool:
    """Whether the table before has the same columns, but for those that are renamed."""
    if version.schema is None and version.why != KEPT_FOR_ITS_NAME:
        return False
    return bool(version.renamed_from) or (
        version is not first and (version.origin is Origin.DDL or version.is_renaming)
    )


def key_now(history: SchemaHistory, erasure: Erasure) -> KeyNames:
    """What the columns of an erasure's key are called now."""
    key = KeyNames(erasure.key, is_known=bool(erasure.keys))
    versions = history.versions(*split_table_name(erasure.table))
    for version in versions if erasure.keys else ():
        if version.place > erasure.keys[0].place:
            is_known = key.is_known and _goes_on(version, versions[0])
            key = KeyNames(version.names_after(key.names), is_known)
    return key


def _bound_of(history: SchemaHistory, name: str, table: str, until: NameBound) -> NameBound:
    """Before the table that has the name now."""
    versions = history.versions(*split_table_name(name))
    gone = [version for version in versions if version.why == DROPPED or version.renamed_from]
    if gone:
        return NameBound(seq=str(gone[-1].place), time_us=gone[-1].time_us)
    if versions:
        raise ConfigError(
            f"it is not known until when {name} was the name of {table}: another table has it now",
            table=table,
            setting="formerly",
            next_step="erase without it, and replay no journals from before that rename",
        )
    return until


def _no_key(table: str, expected: Sequence[str], got: Sequence[str]) -> ConfigError:
    return ConfigError(
        "this finds no row of the table",
        table=table,
        setting="where",
        expected=", ".join(expected),
        got=", ".join(got),
        next_step="give columns of the table with the texts of their values, bytes in hex: "
        "--where COLUMN=VALUE",
    )
