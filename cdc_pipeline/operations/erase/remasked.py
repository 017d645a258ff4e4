"""What new masks leave of old values: which values their masks do not make, what the quarantine has
by other masks, and tables of earlier names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.target_config import FixedMask, HashMask, Mask, TruncateMask
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.erasures import NameBound
from cdc_pipeline.lake.remasks import Remask, RemaskCertificate
from cdc_pipeline.operations.erase.certify import Certifying
from cdc_pipeline.operations.erase.keys import column_of, images_of
from cdc_pipeline.operations.erase.search import Sought
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.replace.content import columns_of_lake
from cdc_pipeline.targets.masks import mask_of
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import split_table_name

_NOT_SEARCHED = (
    "the source, its journals, and their copies elsewhere",
    "separate lakes of backfills (--into), copies of cuts, and backups of the lake",
    "earlier versions that a bucket, or snapshots of a file system, keep of files",
    "tables and quarantine of a name that the schema history has forgotten",
    "defaults of columns, in records of batches and the schema history",
    "what Dagster keeps: reports of verifications name keys of rows that differed",
)


def shown(masks: Mapping[str, str]) -> dict[str, str]:
    """Without what a salt could be tried by."""
    return {name: "hash" if of.startswith("hash:") else of for name, of in masks.items()}


def _masks_of(targets: Targets, name: str, spec: TargetSpec) -> dict[str, Mask]:
    """By column of the target, also of columns that the source has no more."""
    kept, masks = columns_of_lake(name, spec), dict[str, Mask]()
    for source, of in spec.sources.items():
        names, routes = dict(of.names), targets.routes_of(source)
        for column in (*of.columns, *kept):
            mask = mask_of(routes, column.name)
            if mask is not None:
                masks[names.get(column.name, column.name)] = mask
    return masks


def _is_other(values: pa.Array, mask: Mask) -> pa.Array:
    """Which values the mask does not make; NULL is none."""
    if isinstance(mask, HashMask):
        return pc.invert(pc.match_substring_regex(values, "^[0-9a-f]{64}$"))
    if isinstance(mask, TruncateMask) and pa.types.is_string(values.type):
        return pc.greater(pc.utf8_length(values), mask.truncate)
    if isinstance(mask, TruncateMask):  # of text that is stored as bytes, at most four each
        return pc.greater(pc.binary_length(values), 4 * mask.truncate)
    if isinstance(mask, FixedMask) and mask.fixed is not None:
        return pc.not_equal(values, pa.scalar(mask.fixed).cast(values.type))
    return pc.is_valid(values)


@dataclass(frozen=True)
class Remasked(Certifying[RemaskCertificate]):
    """A request whose new rows are in place; `names_now`: for one that recorded none."""

    done: Remask
    names_now: Mapping[str, Mapping[str, NameBound]]
    targets: Targets

    @property
    def names(self) -> Mapping[str, Mapping[str, NameBound]]:
        return self.done.names or self.names_now

    @property
    def specs(self) -> dict[str, TargetSpec]:
        by_name = self.targets.by_name
        return {name: by_name[name].spec for name in self.done.masks if name in by_name}

    @property
    def sources(self) -> set[str]:
        return set().union(*self.names.values())

    def is_gone(self, rows: DecodedRows) -> bool:
        """Whether they were masked otherwise than those of the table now."""
        name, place = rows.schema.full_name, max(int(one.as_py()) for one in rows.seq)
        return any(
            self._differs(source, rows.schema)
            for source, names in self.names.items()
            if source == name or (name in names and place < names[name].place)
        )

    def _differs(self, source: str, schema: TableSchema) -> bool:
        """By the masks of `source`. A column that was renamed since has none under its earlier
        name: who lacks a masked column may have it so.
        """
        database, table = split_table_name(source)
        columns = tuple(replace(column, masked="") for column in schema.columns)
        plain = replace(schema, database=database, table=table, columns=columns)
        try:
            masked = self.targets.masks.schema(plain)
        except ConfigError:
            return True
        if masked.columns != schema.columns:
            return True
        routes, present = self.targets.routes_of(source), set(schema.column_names)
        return self.known is None and any(
            column.name not in present and mask_of(routes, column.name) is not None
            for spec in self.specs.values()
            if source in spec.sources
            for column in spec.sources[source].columns
        )

    def sought(self) -> Sought:
        return Sought(
            what="rows with values that no mask of theirs makes",
            columns=self._columns,
            count=self._count,
            targets=self.specs.keys(),
            names={*self.done.masks, *self._earlier()},
            advice="lacks these masks: give it the same; or if it is gone at the source, exclude "
            "it (tables.exclude), run the source, and remove its folder",
            **self.since(),
        )

    @cached_property
    def _masks(self) -> dict[str, dict[str, Mask]]:
        return {name: _masks_of(self.targets, name, spec) for name, spec in self.specs.items()}

    def _columns(self, target: str) -> set[str]:
        spec = self.specs[target]
        masked = self._masks[target].keys() & {one.name for one in spec.columns}
        return {*masked, *images_of(spec)[1:]} if masked else set()

    def _count(self, target: str, rows: pa.Table) -> int:
        found = pa.repeat(pa.scalar(False), len(rows))
        for image in images_of(self.specs[target]):
            there = {one.name for one in (rows.schema.field(image).type if image else rows.schema)}
            for name, mask in self._masks[target].items():
                if name in there:
                    wrong = _is_other(column_of(rows, name, image), mask)
                    found = pc.or_(found, pc.fill_null(wrong, False))
        return int(pc.sum(found).as_py() or 0)

    def _earlier(self) -> set[str]:
        """Tables of earlier names, which no new rows reach; without those that have the masks."""
        earlier = {name for source, of in self.names.items() for name in of if name != source}
        masks, found = [_recorded_masks(spec) for spec in self.specs.values()], set(earlier)
        for name, target in self.targets.by_name.items():
            has_masks = _recorded_masks(target.spec) in masks
            if has_masks or earlier.isdisjoint(target.spec.sources):
                found.discard(name)
            else:
                found.add(name)
        return found

    def certificate(self, searched: dict[str, Any]) -> RemaskCertificate:
        return RemaskCertificate(
            remask_id=self.done.remask_id,
            table=self.done.table,
            masks={name: shown(_recorded_masks(spec)) for name, spec in self.specs.items()},
            not_searched=_NOT_SEARCHED,
            **searched,
        )


def _recorded_masks(spec: TargetSpec) -> Mapping[str, str]:
    return spec.shape.masks if spec.shape else {}
