"""Rows of a target after a load, where rows or values of the old table stay: a frame that Spark writes (K10, K17, K18).

*Loaded* is the side table, *there* the target's old one. The load's place is the `seq` that rows which were read carry,
but for their row ordinals: `[place, next)`. In the modes that keep every change they were read in one view at exactly
that place, and what the side table tells from `next` on is the log.

Rules:
- mirror: the loaded rows; columns that the side table has not come from the row of the same key that was there.
- soft_delete: the loaded rows; of the others those that were marked stay as they are, and living ones are marked as
  deleted where the load ends.
- history: what was there holds up to the load's place, and what is loaded from there on. A version that is open there
  goes on if the loaded one that begins there equals it in its tracked columns, and else ends; one that began later is
  told by the loaded ones. So the intervals of a key never overlap, and closed versions stay.
- changelog: what was there stays, and changes that it has not (by `seq`) are added. Where it does not hold every change
  up to the load's place (`RecordedContent.restarts`), a ``truncate`` stands there, and after it the rows that were
  read: who applies the changes in their order has the source's rows from there on, and a note tells of the gap.
- A value that was there and that its column's new type cannot hold is NULL, and its text in ``_cdc_rescued``.
"""

# ruff: noqa: S608 - names and literals in the SQL are quoted by `sql`; there is no other way to build statements

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc_pipeline.binlog.selected import LOAD_EVENTS
from cdc_pipeline.binlog.seq import ROW_BITS, journal_number, pack_seq
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.sink.modes.mode_columns import (
    BEFORE_COLUMN,
    DELETED_COLUMN,
    END_COLUMN,
    END_TS_COLUMN,
    OP_COLUMN,
    SEQ_COLUMN,
    START_COLUMN,
    TRANSACTION_COLUMN,
    TS_COLUMN,
    cdc_columns,
)
from cdc_pipeline.sink.modes.rescue import RESCUED, RESCUED_COLUMN, comparable, with_rescued_column
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOAD_ROOM: Final = LOAD_EVENTS << (ROW_BITS + 1)  # seqs of a load's rows


def replaced_rows(
    session: SparkSession, record: BatchRecord, target: RecordedTarget, loaded: DataFrame, there: DataFrame
) -> DataFrame:
    """All rows of the target after the batch, in the table's order of columns."""
    rows = _Rows(session, record, with_rescued_column(target), loaded, there)
    made = {"soft_delete": rows.soft_delete, "history": rows.history, "changelog": rows.changelog}
    return session.sql(made.get(target.mode, rows.mirror)())


class _Rows:
    """The queries, over the views ``loaded`` and ``there``, which have all columns of the target."""

    def __init__(
        self, session: SparkSession, record: BatchRecord, target: RecordedTarget, loaded: DataFrame, there: DataFrame
    ) -> None:
        assert target.content is not None
        self._session, self._record, self._target, self._content = session, record, target, target.content
        of_mode = cdc_columns(target.mode, target.columns, target.key)
        self._own = [column.name for column in of_mode]
        self._names = [*(column.name for column in target.columns), *self._own]
        self._types = {column.name: column.delta_type for column in (*target.columns, *of_mode)}
        self._view("loaded", loaded, carried=set(self._content.carried))
        self._view("there", there, carried=set())

    def mirror(self) -> str:
        return f"SELECT {self._loaded_columns()} FROM loaded AS s{self._with_carried('there')}"

    def soft_delete(self) -> str:
        cursor = self._record.cursor_after
        place = pack_seq(cursor.epoch, journal_number(cursor.journal), cursor.offset)
        marked = {
            OP_COLUMN: "'delete'",
            SEQ_COLUMN: seq_literal(place),
            TS_COLUMN: _moment(self._record.source_time_us, self._content.ts_us),
            DELETED_COLUMN: "true",
        }
        gone = [
            f"IF(t.{DELETED_COLUMN}, t.{quoted(name)}, {marked[name]}) AS {quoted(name)}"
            if name in marked
            else f"t.{quoted(name)}"
            for name in self._names
        ]
        return f"""
            {self.mirror()}
            UNION ALL SELECT {", ".join(gone)} FROM there AS t LEFT ANTI JOIN loaded AS s ON {self._same_key("t")}"""

    def history(self) -> str:
        place, following = self._place
        self._session.sql(
            f"SELECT * FROM there WHERE {START_COLUMN} < {place} AND ({END_COLUMN} IS NULL OR {END_COLUMN} >= {place})"
        ).createOrReplaceTempView("open")
        begins = f"s.{START_COLUMN} >= {place} AND s.{START_COLUMN} < {following}"
        tracked, all_values = self._differs(self._tracked()), self._differs(self._compared())
        goes_on = f"({begins} AND t.{START_COLUMN} IS NOT NULL AND NOT ({tracked}))"
        untouched = f"({goes_on} AND s.{SEQ_COLUMN} = s.{START_COLUMN} AND NOT ({all_values}))"
        taken = {START_COLUMN: goes_on, OP_COLUMN: untouched, SEQ_COLUMN: untouched, TS_COLUMN: untouched}
        told = [
            f"IF({taken[name]}, t.{quoted(name)}, s.{quoted(name)}) AS {quoted(name)}"
            if name in taken
            else self._loaded_column(name)
            for name in self._names
        ]
        ended = {
            END_COLUMN: f"coalesce(s.{START_COLUMN}, {place})",
            END_TS_COLUMN: _moment(self._content.ts_us),
        }
        ends = [f"{ended.get(name, f't.{quoted(name)}')} AS {quoted(name)}" for name in self._names]
        same = self._same_key("t")
        return f"""
            SELECT {self._all("t")} FROM there AS t WHERE {START_COLUMN} < {place} AND {END_COLUMN} < {place}
            UNION ALL SELECT {", ".join(told)} FROM loaded AS s LEFT JOIN open AS t ON {same}
            UNION ALL SELECT {", ".join(ends)} FROM open AS t LEFT JOIN loaded AS s ON {same} AND {begins}
                WHERE s.{START_COLUMN} IS NULL OR {tracked}"""

    def changelog(self) -> str:
        place, following = self._place
        read = f"{SEQ_COLUMN} >= {place} AND {SEQ_COLUMN} < {following}"
        added = f"""
            SELECT {self._all("s")} FROM loaded AS s LEFT ANTI JOIN there AS t ON t.{SEQ_COLUMN} = s.{SEQ_COLUMN}
            WHERE s.{SEQ_COLUMN} >= {following}"""
        if not self._content.restarts:
            return f"SELECT {self._all('t')} FROM there AS t UNION ALL {added}"
        begin = {
            OP_COLUMN: "'truncate'",
            SEQ_COLUMN: place,
            TS_COLUMN: _moment(self._content.ts_us),
            TRANSACTION_COLUMN: f"(SELECT max({TRANSACTION_COLUMN}) FROM loaded WHERE {read})",
            "_cdc_ordinal": "0L",
        }
        row = [f"{begin.get(name, f'CAST(NULL AS {self._types[name]})')} AS {quoted(name)}" for name in self._names]
        return f"""
            SELECT {self._all("t")} FROM there AS t WHERE NOT ({read})
            UNION ALL SELECT {", ".join(row)}
            UNION ALL SELECT {self._all("s")} FROM loaded AS s WHERE {read}
            UNION ALL {added}"""

    # -- the two tables with the target's columns ---------------------------------------------------------------------

    def _view(self, name: str, frame: DataFrame, *, carried: set[str]) -> None:
        """Make the view of a table with the target's columns and types; what it has not is NULL."""
        fields = {field.name.lower(): field for field in frame.schema.fields}
        values: dict[str, str] = {}
        rescued: list[str] = []
        for column, kind in self._types.items():
            field = fields.get(column.lower())
            if field is None or column in carried:
                values[column] = f"CAST(NULL AS {kind})"
            elif column == BEFORE_COLUMN:
                values[column] = self._before(field.dataType, quoted(field.name), rescued)
            else:
                values[column] = self._as(quoted(field.name), field.dataType.simpleString(), kind, column, rescued)
        if rescued:
            told = values[RESCUED_COLUMN]
            more = f"map_from_entries(filter(array({', '.join(rescued)}), e -> e.value IS NOT NULL))"
            both = f"map_concat(coalesce({told}, CAST(map() AS {RESCUED.delta_type})), {more})"
            values[RESCUED_COLUMN] = f"IF(cardinality({more}) = 0, {told}, {both})"
        frame.createOrReplaceTempView(f"{name}_as_it_is")
        listed = ", ".join(f"{value} AS {quoted(column)}" for column, value in values.items())
        self._session.sql(f"SELECT {listed} FROM {name}_as_it_is").createOrReplaceTempView(name)

    def _as(self, value: str, found: str, wanted: str, name: str, rescued: list[str]) -> str:
        """A value as another type; what it cannot hold is added to `rescued`."""
        if found == wanted.replace(", ", ",").replace("`", ""):
            return value
        cast = f"try_cast({value} AS {wanted})"
        try:
            self._session.sql(f"SELECT try_cast(CAST(NULL AS {found}) AS {wanted})").collect()
        except Exception:  # no such cast
            cast = f"CAST(NULL AS {wanted})"
        lost = f"IF({cast} IS NULL, CAST({value} AS string), NULL)"
        if RESCUED_COLUMN in self._types and name != RESCUED_COLUMN:
            rescued.append(f"struct({text_literal(name)} AS key, {lost} AS value)")
        return cast

    def _before(self, found: object, value: str, rescued: list[str]) -> str:
        """The image before a change, field by field."""
        fields = {field.name.lower(): field for field in found.fields}  # type: ignore[attr-defined]
        made = []
        for column in self._target.columns:
            field = fields.get(column.name.lower())
            inner = f"CAST(NULL AS {column.delta_type})"
            if field is not None:
                at, name = f"{value}.{quoted(field.name)}", f"{BEFORE_COLUMN}.{column.name}"
                inner = self._as(at, field.dataType.simpleString(), column.delta_type, name, rescued)
            made.append(f"{text_literal(column.name)}, {inner}")
        return f"IF({value} IS NULL, NULL, named_struct({', '.join(made)}))"

    def _loaded_columns(self) -> str:
        return ", ".join(self._loaded_column(name) for name in self._names)

    def _loaded_column(self, name: str) -> str:
        return f"{'t' if name in self._content.carried else 's'}.{quoted(name)}"

    def _with_carried(self, view: str) -> str:
        return f" LEFT JOIN {view} AS t ON {self._same_key('t')}" if self._content.carried else ""

    def _all(self, alias: str) -> str:
        return ", ".join(f"{alias}.{quoted(name)}" for name in self._names)

    def _same_key(self, alias: str) -> str:
        return " AND ".join(f"{alias}.{quoted(name)} <=> s.{quoted(name)}" for name in self._target.key)

    @property
    def _place(self) -> tuple[str, str]:
        place = int(self._content.seq)
        return seq_literal(place), seq_literal(place + LOAD_ROOM)

    # -- which versions are the same ----------------------------------------------------------------------------------

    def _compared(self) -> list[str]:
        """Columns in which a loaded version can differ from one that was there."""
        left_out = {*self._target.key, *self._content.carried}
        return [column.name for column in self._target.columns if column.name not in left_out]

    def _tracked(self) -> list[str]:
        named = [name for name in self._compared() if name in self._target.track]
        if not named:
            return self._compared()
        return [*named, RESCUED_COLUMN] if RESCUED_COLUMN in self._types else named

    def _differs(self, names: list[str]) -> str:
        """Whether the rows ``s`` and ``t`` differ in one of these columns."""
        entries = [name for name in names if name != RESCUED_COLUMN] if self._target.track else []
        pairs = [
            [comparable(f"{alias}.{quoted(name)}", self._types[name], names=entries) for alias in "st"]
            for name in names
        ]
        return " OR ".join(f"NOT ({loaded} <=> {there})" for loaded, there in pairs) or "false"


def _moment(*candidates_us: int) -> str:
    """The first time that is known."""
    known = [at_us for at_us in candidates_us if at_us >= 0]
    return f"timestamp_micros({known[0]})" if known else "CAST(NULL AS timestamp)"
