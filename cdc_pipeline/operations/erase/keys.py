"""Find the keys whose rows are to be erased, as the log has them and as each target does.

Rules:
- Values come as text and are values of the table's own types, or refused; they are never SQL (K20).
- A condition on other columns finds keys in every row that a target holds: of the past, deleted,
  and in both images of a change. Keys that targets hold masked cannot be found so.
- Every table of the last cut is a target that holds the table's rows, or did under an earlier name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import arrow_of_delta
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.binlog.value_text import hashed, texts_of, value_of
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
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.apply.erase import BOUND_COLUMN
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.modes.mode_columns import BEFORE_COLUMN, SEQ_COLUMN
from cdc_pipeline.sink.read.rows import open_rows
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.masks import mask_key, mask_of
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import split_table_name

KEYS_MAX: Final = 1_000

Key = tuple[str, ...]  # texts in the order of the key, bytes in hex


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """`columns` in the key's order; of a shard the column and value that tell its rows. Rows from
    `bound` on, a seq, are another table's of that name.
    """

    target: Target
    columns: tuple[str, ...]
    bound: int
    shard: tuple[str, str] | None = None

    @property
    def spec(self) -> TargetSpec:
        return self.target.spec

    def table(self, keys: Sequence[pa.Array]) -> pa.Table:
        texts = {name: texts_of(keys[at]) for at, name in enumerate(self.columns)}
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
    """The places that hold keys of `table` under any of `names`. ConfigError: there are none."""

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
        arrays = []
        for at, (name, type_) in enumerate(zip(self.source.key, self._types, strict=True)):
            values = [None if type_ is None else value_of(key[at], type_) for key in keys]
            if None in values:
                raise _no_key(self.table, [f"{name}: {type_}"], [name])
            arrays.append(pa.array([value.as_py() for value in values if value is not None], type_))
        return arrays

    def masked(self, arrays: Sequence[pa.Array]) -> list[pa.Array]:
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

    def found(self, paths: LakePaths, where: Mapping[str, str]) -> list[Key]:
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
            values = self._values(place, where)
            if values is None:
                continue
            is_known, images = True, images_of(place.spec)
            columns, path = {*values, *place.columns, *images[1:]}, paths.table(place.target.name)
            for rows in open_rows(path, readable_state(path), columns=columns).batches():
                for image in images:
                    of_image = [column_of(rows, name, image) for name in place.columns]
                    passing: Any = pa.scalar(True)
                    for name, value in values.items():
                        passing = pc.and_(passing, pc.equal(column_of(rows, name, image), value))
                    found = pa.table(of_image, list(place.columns)).filter(passing)
                    distinct = found.group_by(found.column_names).aggregate([])
                    texts = (texts_of(one.combine_chunks()) for one in distinct.columns)
                    keys.update(key for key in zip(*texts, strict=True) if None not in key)
        if not is_known:
            columns_known = [column.name for column in self.source.columns]
            raise _no_key(self.table, columns_known, list(where))
        return sorted(keys)

    def _values(self, place: KeyPlace, where: Mapping[str, str]) -> dict[str, pa.Scalar] | None:
        """Of a condition, by columns of a target; None if it lacks one."""
        types = {column.name: column.delta_type for column in place.spec.columns}
        renamed = dict(place.spec.sources.get(self.table, self.source).names)
        texts = {renamed.get(name, name): text for name, text in where.items()}
        if not set(texts) <= set(types):
            return None
        if place.shard is not None:
            texts[place.shard[0]] = place.shard[1]
        values = {}
        for name, text in texts.items():
            type_ = arrow_of_delta(types[name])
            value = None if type_ is None else value_of(text, type_)
            if value is None:
                raise _no_key(place.target.name, [f"{name}: {types[name]}"], [name])
            values[name] = value
        return values

    # -- rows of these keys ------------------------------------------------------------------------

    def columns(self, target: str) -> set[str]:
        columns = {SEQ_COLUMN}
        for place in self._of(target):
            columns |= {*place.columns, *images_of(place.spec)[1:]}
            columns |= {place.shard[0]} if place.shard is not None else set()
        return columns

    def count(self, target: str, rows: pa.Table, has: Callable[[Sequence[pa.Array]], Any]) -> int:
        """How many rows hold one of the keys that `has` knows, in either image."""
        return sum(int(_held(rows, place, has).sum()) for place in self._of(target))

    def _of(self, target: str) -> list[KeyPlace]:
        return [place for place in self.places if place.target.name == target]


def _held(
    rows: pa.Table, place: KeyPlace, has: Callable[[Sequence[pa.Array]], Any]
) -> NDArray[np.bool_]:
    held = np.zeros(len(rows), np.bool_)
    for image in images_of(place.spec) if len(rows) else ():
        held |= np.array(has([column_of(rows, name, image) for name in place.columns]))
    bound = pa.scalar(Decimal(place.bound), SEQ_TYPE)
    held &= np.array(pc.fill_null(pc.less(rows.column(SEQ_COLUMN), bound), True))
    if place.shard is not None:
        column, value = place.shard
        held &= np.array(pc.fill_null(pc.equal(rows.column(column), value), False))
    return held


def images_of(spec: TargetSpec) -> list[str]:
    """The rows of a target's table: "", and the struct of the row before a change."""
    return ["", BEFORE_COLUMN] if MODES[spec.mode].rows_are_changes else [""]


def column_of(rows: pa.Table, name: str, image: str) -> pa.Array:
    column = pc.struct_field(rows.column(image), [name]) if image else rows.column(name)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def earlier_names(
    history: SchemaHistory, table: str, *, until: NameBound, given: Collection[str] = ()
) -> dict[str, NameBound]:
    """What the schema history shows of RENAME, and names that are `given` for what it has
    forgotten. Raises ConfigError: it is not known until when such a name was the table's.
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
    """What the key's columns were called, newest first, where the history knows it."""
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
