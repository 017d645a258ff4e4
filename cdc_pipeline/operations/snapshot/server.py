"""Queries of a snapshot besides rows: tables, their columns, proofs of places in the log."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.operations.snapshot.side import LOG_IS_GONE, SnapshotLake, log_is_gone
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.run.wiring import captured_by
from cdc_pipeline.source.live.catalog import read_catalog
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.live import LiveSource
from cdc_pipeline.source.rows.marks import wait_committed
from cdc_pipeline.source.rows.table_reader import TableReader
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.text.table_names import split_table_name, table_name


class SnapshotSource:
    """Server of a snapshot; the standby if the primary is unreachable."""

    def __init__(self, config: PipelineConfig, *, role: str = "snapshot") -> None:
        chosen = choose(config).config.source
        assert isinstance(chosen, LiveSourceConfig)
        # The name determines the replica server id. It differs from that of the source's own
        # captures, because the server ends the first of two dumps with the same id.
        self.config = chosen.model_copy(update={"replica_server_id": None})
        self.live = LiveSource(
            self.config,
            pipeline_name=f"{config.name}/{role}",
            captured=partial(captured_by, config),
        )
        self._wait_s = config.snapshot.lock_wait_s
        self.reader = partial(TableReader, chosen, found_by=Routes(config).found_by)

    def __enter__(self) -> SnapshotSource:
        self.live.check()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.close()

    @property
    def server(self) -> ServerConnection:
        return self.live.server

    def tables(self) -> list[str]:
        return self.server.tables()

    def proved(self, position: Position) -> Position:
        """A place at or before `position` up to which everything is committed."""
        return wait_committed(self.server, position)

    def schemas(self, names: Collection[str]) -> dict[str, TableSchema]:
        """Present columns of tables; tables missing or unknown are left out."""
        with self.server.no_refusal():
            catalog = read_catalog(
                self.server, lambda database, table: table_name(database, table) in names
            )
            return {schema.full_name: schema for schema, _ in catalog.tables.values()}

    def sizes(self, names: Collection[str]) -> dict[str, tuple[int, int]]:
        sizes = {}
        for name in names:
            with self.server.no_refusal():
                rows = self.server.rows(
                    "SELECT TABLE_ROWS, AVG_ROW_LENGTH AS average FROM "
                    "information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
                    split_table_name(name),
                )
            if rows:
                sizes[name] = (
                    rows[0].optional_number("table_rows", 0),
                    rows[0].optional_number("average", 0),
                )
        return sizes

    def check_log(self, side: SnapshotLake) -> None:
        """Raises SnapshotError unless the log still reaches back to the side lake's position."""
        at = side.cursor.position
        try:
            self.live.validate_position(at)
        except LOG_IS_GONE as error:
            raise log_is_gone(side.state.source, at, error) from error
