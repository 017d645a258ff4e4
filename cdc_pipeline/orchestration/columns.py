"""Columns of a Delta table for Dagster: their types here and at the source, comments, and which
columns of source tables each one comes from.

Rules:
- Comments and source types are the server's own, as information_schema shows them when a batch is
  logged; of an archive, and of a server that does not answer, there are none.
- A column is derived from those that it reads: a plain or masked one from its namesakes in all
  source tables, a computed one from what its expression reads. Columns of the pipeline have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import dagster as dg

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError, StatementError
from cdc_pipeline.orchestration.names import markdown
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.modes.mode_columns import (
    OP_COLUMN,
    RESCUED,
    RESCUED_COLUMN,
    SEQ_COLUMN,
    TS_COLUMN,
    own_columns,
)
from cdc_pipeline.text.printable import printable
from cdc_pipeline.text.table_names import split_table_name

# What the pipeline adds to each table's own columns.
_CDC_DESCRIPTIONS = {
    OP_COLUMN: "last operation on the row: insert or update",
    SEQ_COLUMN: (
        "position of that change in the order of all changes of the source: the higher, the later"
    ),
    TS_COLUMN: "when that change was committed at the source",
    RESCUED_COLUMN: "the server's text of values that their columns cannot hold, by column",
}


class SourceColumn(NamedTuple):
    """A column as the server describes it."""

    type: str
    comment: str


# By source table, ``schema.table``, and column.
SourceColumns = Mapping[str, Mapping[str, SourceColumn]]


def column_schema(
    columns: Sequence[TargetColumn],
    *,
    key: Sequence[str] = (),
    mode: Mode = "mirror",
    rescues: bool = False,
    described: Mapping[str, SourceColumn] | None = None,
) -> dg.TableSchema:
    """The source's, then the pipeline's; `described`: by the source, under the names here."""
    columns = (*columns, RESCUED) if rescues else columns
    described = described or {}

    def column(of: TargetColumn) -> dg.TableColumn:
        at_source = described.get(of.name)
        said = [
            _CDC_DESCRIPTIONS.get(of.name, ""),
            "" if at_source is None else markdown(at_source.comment),
        ]
        # Not in the description: Dagster shows a definition's in place of an event's.
        marks = ["key"] if of.name in key else []
        return dg.TableColumn(
            name=of.name,
            type=of.delta_type,
            description="; ".join(filter(None, said)) or None,
            constraints=dg.TableColumnConstraints(
                other=marks if at_source is None else [*marks, f"at the source {at_source.type}"]
            ),
        )

    return dg.TableSchema(
        columns=[column(of) for of in (*columns, *own_columns(mode, tuple(columns), tuple(key)))]
    )


def column_origins(table: str, spec: TargetSpec) -> dict[str, list[tuple[str, str]]]:
    """The source table and column that each column of the target `table` comes from."""
    sources = spec.sources_of(table)
    found: dict[str, list[tuple[str, str]]] = {}
    for source, recorded in sources.items():
        names = dict(recorded.names)
        for at_source in recorded.columns:
            name = names.get(at_source.name, at_source.name)
            found.setdefault(name, []).append((source, at_source.name))
    for computed in spec.shape.computed if spec.shape is not None else ():
        reads = _reads(computed.expression)
        found[computed.name] = [
            (source, of.name)
            for source, recorded in sources.items()
            for of in recorded.columns
            if of.name.lower() in reads
        ]
    own = {column.name for column in spec.columns}
    return {name: origins for name, origins in found.items() if name in own and origins}


def described_columns(
    table: str, spec: TargetSpec, at_source: SourceColumns
) -> dict[str, SourceColumn]:
    """Of columns that come from one column of their own type, by their names in the target."""
    computed = {column.name for column in spec.shape.computed} if spec.shape is not None else set()
    return {
        name: found
        for name, origins in column_origins(table, spec).items()
        if name not in computed
        and (found := at_source.get(origins[0][0], {}).get(origins[0][1])) is not None
    }


def read_source_columns(config: PipelineConfig, tables: Sequence[str]) -> SourceColumns:
    """Nothing of an archive, or if the server does not answer."""
    if not tables or not isinstance(config.source, LiveSourceConfig):
        return {}
    # Imported late: definitions are loaded often and need none of this.
    from cdc_pipeline.source.live.connection import ServerConnection

    names = [split_table_name(table) for table in tables]
    columns: dict[str, dict[str, SourceColumn]] = {}
    try:
        with closing(ServerConnection(config.source)) as server:
            rows = server.rows(
                "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COLUMN_COMMENT FROM "
                "information_schema.COLUMNS WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s",
                (names,),
            )
    except (CdcError, StatementError):
        return {}
    of_name = dict(zip(names, tables, strict=True))
    for row in rows:
        schema, name, column, type_, comment = map(_text, row.values())
        table = of_name.get((schema, name))
        if table is not None:
            columns.setdefault(table, {})[column] = SourceColumn(printable(type_), comment)
    return columns


def _text(value: object) -> str:
    """Bytes that are no UTF-8, as the labels of an ENUM may have, as escapes."""
    raw = value if isinstance(value, bytes) else str(value or "").encode(errors="surrogateescape")
    return raw.decode(errors="backslashreplace")


def _reads(expression: str) -> tuple[str, ...]:
    # Imported late: most tables have no computed column.
    from cdc_pipeline.config.expressions import read_expression

    return read_expression(expression).reads
