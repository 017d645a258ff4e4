"""Replace the values of masked columns, from decoding on (K14).

Rules:
- Masks are of a source table's columns. Every target of a table gets the same masked rows: rules
  that mask a column differently contradict each other and are refused. So there is only one decoded
  row, and nothing that comes after (staging, parked XA rows, rescue, quarantine, errors) can hold
  the value itself.
- A column that no target of the table takes is emptied like a dropped one.
- NULL stays NULL, absent stays absent; ``fixed`` hides both: it appears in every existing image.
- A value that its type cannot hold does not matter if it is dropped or fixed; else its text is
  hidden.
- The rows' schema contains each column's mask (`Column.masked`), which shows whether parked rows
  have the present masks. Of a salt it contains the hash of a fixed text, like any hashed value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import SecretStr

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.decoded import DELETE, INSERT, DecodedRows
from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.binlog.value_text import has_text, hashed
from cdc_pipeline.config.target_config import FixedMask, HashMask, Mask, SaltConfig, TruncateMask
from cdc_pipeline.errors import ConfigError, StagingError
from cdc_pipeline.targets.routes import Route

HIDDEN: Final = "(masked)"
_CHECK: Final = "cdc_pipeline mask check"
_UNUSED: Final = "drop"


class Masks:
    """The masks of every captured table, by its routes; a renamed one has those it had."""

    def __init__(self, routes_of: Callable[[str], tuple[Route, ...]]) -> None:
        self._routes_of = routes_of
        self._plans: dict[TableSchema, tuple[tuple[Route, ...], tuple[Mask | None, ...]]] = {}

    def apply(self, rows: DecodedRows) -> DecodedRows:
        """ConfigError: a mask does not fit its column, or two rules contradict each other."""
        masks = self._masks(rows.schema)
        if not any(masks):
            return rows
        columns = rows.schema.columns
        images = []
        for image, without in ((rows.before, INSERT), (rows.after, DELETE)):
            is_present = rows.op != without
            arrays = [
                array if mask is None else _masked(array, column, mask, is_present)
                for array, column, mask in zip(image.columns, columns, masks, strict=True)
            ]
            images.append(pa.RecordBatch.from_arrays(arrays, names=rows.schema.column_names))
        invalid = []
        for value in rows.invalid:
            mask = masks[value.column]
            if mask is None:
                invalid.append(value)
            elif _kind(mask) not in ("drop", "fixed"):
                invalid.append(value._replace(text=HIDDEN))
        before, after = images
        return replace(
            rows, schema=self.schema(rows.schema), before=before, after=after, invalid=invalid
        )

    def schema(self, schema: TableSchema) -> TableSchema:
        masks = self._masks(schema)
        if not any(masks):
            return schema
        columns = tuple(
            column if mask is None else replace(column, masked=fingerprint(mask))
            for column, mask in zip(schema.columns, masks, strict=True)
        )
        return replace(schema, columns=columns)

    def check_parked(self, schema: TableSchema) -> None:
        """Raise StagingError unless rows masked in an earlier run have the present masks."""
        plain = replace(
            schema, columns=tuple(replace(column, masked="") for column in schema.columns)
        )
        if self.schema(plain) != schema:
            raise StagingError(
                "rows of a prepared XA transaction were parked with masks that differ from the "
                "current configuration",
                table=schema.full_name,
                expected="the same masks from prepare to commit",
                next_step="restore the masks under `targets` until the transaction has ended; "
                "or move the cursor back to before its prepare",
            )

    def _masks(self, schema: TableSchema) -> tuple[Mask | None, ...]:
        routes = self._routes_of(schema.full_name)
        known, found = self._plans.get(schema, ((), ()))
        if known != routes:
            found = tuple(mask_of(routes, column.name) for column in schema.columns)
            for column, mask in zip(schema.columns, found, strict=True):
                if mask is not None:
                    _check_fits(mask, column, routes)
            self._plans[schema] = routes, found
        return found or (None,) * len(schema.columns)


def mask_of(routes: tuple[Route, ...], column: str) -> Mask | None:
    """Over all targets of a table; ConfigError if two rules contradict each other."""
    # A target that leaves the column out does not matter: it never gets the column.
    masks = [
        (route, route.rule.mask_of(column)) for route in routes if route.rule.columns.takes(column)
    ]
    if not masks:
        return _UNUSED if routes else None
    first, mask = masks[0]
    for route, other in masks[1:]:
        if other != mask:
            raise ConfigError(
                f"{first.setting} and {route.setting} mask column {column} of "
                f"{route.source} differently",
                table=route.source,
                setting=f"{route.setting}.masks.{column}",
                expected="the same mask of a column in all rules of its table, because rows "
                "are masked before anything is stored",
                next_step="mask the column in the same way in both rules, or exclude it in "
                "one (columns: {exclude: [...]})",
            )
    return mask


def without_salts(masks: Mapping[str, Mask]) -> dict[str, Mask]:
    """Masks that can be passed to another process: what they hash cannot be read there."""
    unsalted = SaltConfig.model_construct(salt=SecretStr(""))
    return {
        name: mask.model_copy(update={"hash": unsalted}) if isinstance(mask, HashMask) else mask
        for name, mask in masks.items()
    }


def mask_key(mask: HashMask) -> bytes:
    salt = mask.hash.salt.get_secret_value()
    if not salt:
        raise ConfigError("the salt of hashed columns is not in this process")
    return salt.encode()


def fingerprint(mask: Mask) -> str:
    """What distinguishes one mask from another, without its salt."""
    if isinstance(mask, HashMask):
        check: str = hashed(pa.array([_CHECK]), mask_key(mask))[0].as_py()
        return f"hash:{check[:16]}"
    if isinstance(mask, TruncateMask):
        return f"truncate:{mask.truncate}"
    return mask if mask == "drop" else f"fixed:{mask.fixed!r}"


def _kind(mask: Mask) -> str:
    return mask if isinstance(mask, str) else next(iter(type(mask).model_fields))


def _masked(array: pa.Array, column: Column, mask: Mask, there: NDArray[np.bool_]) -> pa.Array:
    if isinstance(mask, HashMask):
        return hashed(array, mask_key(mask))
    if isinstance(mask, TruncateMask):
        cut = pc.binary_slice if pa.types.is_binary(array.type) else pc.utf8_slice_codeunits
        return cut(array, 0, mask.truncate)
    if mask == "drop" or mask.fixed is None:
        return pa.nulls(len(array), array.type)
    value = pa.scalar(mask.fixed).cast(arrow_type(column))
    return pc.if_else(pa.array(there), value, pa.scalar(None, array.type))


def _check_fits(mask: Mask, column: Column, routes: tuple[Route, ...]) -> None:
    type_ = arrow_type(replace(column, masked=""))
    expected = ""
    if isinstance(mask, HashMask) and not has_text(type_):
        expected = "a column of single values: geometries and vectors cannot be hashed"
    elif isinstance(mask, TruncateMask) and not (
        pa.types.is_string(type_) or pa.types.is_binary(type_)
    ):
        expected = "a column of text or bytes"
    elif isinstance(mask, FixedMask) and mask.fixed is not None:
        try:
            pa.scalar(mask.fixed).cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            expected = f"a value of the column's own type, {column.kind.value}"
    if expected:
        route = next(route for route in routes if route.rule.mask_of(column.name) is not None)
        raise ConfigError(
            f"the mask {_kind(mask)} cannot be applied to column {column.name} of {route.source}",
            table=route.source,
            setting=f"{route.setting}.masks.{column.name}",
            expected=expected,
            got=column.kind.value,
            next_step="use another mask: drop, hash, truncate or fixed",
        )
