"""A server's log from a place to its end through the schema history, as a run reads it, without
lake or Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cdc_pipeline.binlog.chunk import EventSlice, Role
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.events.query import parse_query
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.schema_history import SchemaHistoryFile
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.decode.decoding import RunDecoder
from cdc_pipeline.run.decode.schemas import Schemas
from cdc_pipeline.run.decode.statements import StatementRules
from cdc_pipeline.schema.history.history import SchemaHistory
from cdc_pipeline.source.archive.files import read_journal
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.targets.targets import targets_at
from cdc_pipeline.text.table_names import NameRule
from cdc_pipeline.transaction.buffer import TransactionBuffer
from tests.servers import Server
from tests.support.live_source import live_source
from tests.support.sink_values import NOTHING_ERASED

EPOCH = 1
Captured = Callable[[str, str], bool]


class Reading:
    """Consecutive runs over one log; `rows` are (table, values by column) of all after images."""

    def __init__(self, server: Server, database: str, folder: Path, *, asks: bool = True) -> None:
        self._server = server
        self._file = SchemaHistoryFile(folder / "schema_history.json")
        document = {
            "name": "reading",
            "source": {"kind": "archive", "directory": folder},
            "tables": {"include": [f"{database}.*"]},
            "sink": {"lake_path": folder / "lake"},
        }
        self._config = PipelineConfig.model_validate(document)
        self._filter = TableFilter(self._config)
        self._asks = asks
        self.targets = targets_at(self._config, None)
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.schemas: list[TableSchema] = []
        self.changes: list[DecodedRows] = []
        self.at = Position(*server.end_position())
        self.notes: list[str] = []

    def schemas_at(self, start: Position) -> Schemas:
        return self._history(start, asks=True)

    def _history(self, start: Position, *, asks: bool) -> Schemas:
        source = live_source(self._server) if asks else None
        history = self._file.read().up_to(pack_seq(EPOCH, *start.order))
        captured = self._filter.captured
        return Schemas(
            history,
            file=self._file,
            epoch=EPOCH,
            start=start,
            ask=lambda _: None if source is None else source.catalog(captured, since=start),
        )

    def begin(self) -> None:
        """What a first run with nothing to read does: the catalog at its start."""
        self.at = Position(*self._server.end_position())
        schemas = self._history(self.at, asks=True)
        schemas.ask_catalog()
        schemas.save(None, source_time_us=-1)

    def run(self) -> None:
        end = Position(*self._server.end_position())
        source = live_source(self._server)
        self._read(source.chunks(self.at, end), self._history(self.at, asks=self._asks))
        source.close()
        self.at = end

    def run_files(self, files: Sequence[Path]) -> None:
        schemas = self._history(Position(files[0].name, 4), asks=False)
        self._read((chunk for file in files for chunk in read_journal(file)), schemas)

    def history(self) -> SchemaHistory:
        return self._file.read()

    def _read(self, chunks: Any, schemas: Schemas) -> None:
        is_mariadb = self._server.flavor == "mariadb"
        rules = StatementRules(
            self._filter,
            is_mariadb=is_mariadb,
            names=NameRule.AS_GIVEN,
            config=self._config,
            followed=(),
        )
        slices: list[EventSlice] = []

        def take(pieces: Sequence[EventSlice]) -> bool:
            slices.extend(pieces)
            return True

        buffer = TransactionBuffer(take, is_isolated=rules.is_isolated, source="")
        decoder = RunDecoder(epoch=EPOCH, schemas=schemas, erased=NOTHING_ERASED)
        for chunk in chunks:
            buffer.feed(chunk)
            for piece in slices:
                self._apply(piece, schemas, rules, self._filter.captured)
                decoded = decoder.decode([piece], self.targets)
                self.notes += [note.text for note in decoded.notes]
                for table in decoded.tables:
                    self.schemas.append(table.rows.schema)
                    self.changes.append(table.rows)
                    self.rows += [
                        (table.rows.schema.table, row) for row in table.rows.after.to_pylist()
                    ]
            slices.clear()
        schemas.save(None, source_time_us=-1)

    @staticmethod
    def _apply(
        piece: EventSlice, schemas: Schemas, rules: StatementRules, captured: Captured
    ) -> None:
        for row in (np.flatnonzero(piece.events["role"] == Role.STATEMENT) + piece.first).tolist():
            query = parse_query(piece.chunk, row)
            schemas.apply(
                query,
                rules.parse(query),
                captured,
                journal=piece.chunk.journal,
                offset=int(piece.chunk.events["offset"][row]),
                time_us=int(piece.chunk.events["commit_ts_us"][row]),
            )

    def of(self, table: str) -> list[dict[str, Any]]:
        return [row for name, row in self.rows if name == table]


def selected(server: Server, database: str, table: str, order: str = "id") -> list[dict[str, Any]]:
    with (
        server.root_connection(database=database, charset="utf8mb4") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SELECT * FROM `{table}` ORDER BY `{order}`")
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
