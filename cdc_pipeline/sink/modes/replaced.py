"""The two tables of a snapshot that keeps rows or values of the old one, as views (K17, K18).

*Loaded* is the side table, *there* the target's old one: the views ``loaded`` and ``there`` have
all columns of the target. The snapshot's place is the `seq` of rows that were read, apart from
their row ordinals: `[place, next)`. In modes that keep every change they were read in one view at
exactly that place, and the side table's rows from `next` on come from the log. An old value that
its column's new type cannot hold is NULL, and its text is in ``_cdc_rescued``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc_pipeline.binlog.selected import SNAPSHOT_EVENTS
from cdc_pipeline.binlog.seq import ROW_BITS
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.sink.modes.mode_columns import (
    BEFORE_COLUMN,
    RESCUED,
    RESCUED_COLUMN,
    own_columns,
)
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SNAPSHOT_SEQS: Final = SNAPSHOT_EVENTS << (ROW_BITS + 1)  # of a snapshot's rows


class ReplacedRows:
    """With the SQL that several modes share; `types` are of all columns of the target's table."""

    def __init__(
        self,
        session: SparkSession,
        record: BatchRecord,
        target: RecordedTarget,
        loaded: DataFrame,
        there: DataFrame,
    ) -> None:
        assert target.content is not None
        self.session = session
        self.record = record
        self.target = target
        self.content = target.content
        spec = target.spec
        own = own_columns(spec.mode, spec.columns, spec.key)
        self.types = {column.name: column.delta_type for column in (*spec.columns, *own)}
        self.names = [*self.types]
        self._view("loaded", loaded, carried=set(self.content.carried))
        self._view("there", there, carried=set())

    def loaded_sql(self) -> str:
        columns = ", ".join(self.loaded_column(name) for name in self.names)
        joined = f" LEFT JOIN there AS t ON {self.same_key()}" if self.content.carried else ""
        return f"SELECT {columns} FROM loaded AS s{joined}"

    # -- the two tables with the target's columns --------------------------------------------------

    def _view(self, name: str, frame: DataFrame, *, carried: set[str]) -> None:
        """With the target's columns and types; columns that the table lacks are NULL."""
        fields = {field.name.lower(): field for field in frame.schema.fields}
        values: dict[str, str] = {}
        rescued: list[str] = []
        for column, kind in self.types.items():
            field = fields.get(column.lower())
            if field is None or column in carried:
                values[column] = f"CAST(NULL AS {kind})"
            elif column == BEFORE_COLUMN:
                values[column] = self._before(field.dataType, quoted(field.name), rescued)
            else:
                values[column] = self._as(
                    quoted(field.name), field.dataType.simpleString(), kind, column, rescued
                )
        if rescued:
            stored = values[RESCUED_COLUMN]
            more = (
                f"map_from_entries(filter(array({', '.join(rescued)}), e -> e.value IS NOT NULL))"
            )
            both = f"map_concat(coalesce({stored}, CAST(map() AS {RESCUED.delta_type})), {more})"
            values[RESCUED_COLUMN] = f"IF(cardinality({more}) = 0, {stored}, {both})"
        frame.createOrReplaceTempView(f"{name}_as_it_is")
        listed = ", ".join(f"{value} AS {quoted(column)}" for column, value in values.items())
        self.session.sql(f"SELECT {listed} FROM {name}_as_it_is").createOrReplaceTempView(name)

    def _as(self, value: str, found: str, wanted: str, name: str, rescued: list[str]) -> str:
        if found == wanted.replace(", ", ",").replace("`", ""):
            return value
        cast = f"try_cast({value} AS {wanted})"
        try:
            self.session.sql(f"SELECT try_cast(CAST(NULL AS {found}) AS {wanted})").collect()
        except Exception:  # no such cast
            cast = f"CAST(NULL AS {wanted})"
        lost = f"IF({cast} IS NULL, CAST({value} AS string), NULL)"
        if RESCUED_COLUMN in self.types and name != RESCUED_COLUMN:
            rescued.append(f"struct({text_literal(name)} AS key, {lost} AS value)")
        return cast

    def _before(self, found: object, value: str, rescued: list[str]) -> str:
        fields = {field.name.lower(): field for field in found.fields}  # type: ignore[attr-defined]
        images = []
        for column in self.target.spec.columns:
            field = fields.get(column.name.lower())
            inner = f"CAST(NULL AS {column.delta_type})"
            if field is not None:
                at, name = f"{value}.{quoted(field.name)}", f"{BEFORE_COLUMN}.{column.name}"
                inner = self._as(
                    at, field.dataType.simpleString(), column.delta_type, name, rescued
                )
            images.append(f"{text_literal(column.name)}, {inner}")
        return f"IF({value} IS NULL, NULL, named_struct({', '.join(images)}))"

    def loaded_column(self, name: str) -> str:
        return f"{'t' if name in self.content.carried else 's'}.{quoted(name)}"

    def all_columns(self, alias: str) -> str:
        return ", ".join(f"{alias}.{quoted(name)}" for name in self.names)

    def same_key(self) -> str:
        return " AND ".join(
            f"t.{quoted(name)} <=> s.{quoted(name)}" for name in self.target.spec.key
        )

    @property
    def place(self) -> tuple[str, str]:
        place = int(self.content.seq)
        return seq_literal(place), seq_literal(place + _SNAPSHOT_SEQS)


def moment(*candidates_us: int) -> str:
    """The first of these times that is known (>= 0), as SQL."""
    known = [at_us for at_us in candidates_us if at_us >= 0]
    return f"timestamp_micros({known[0]})" if known else "CAST(NULL AS timestamp)"
