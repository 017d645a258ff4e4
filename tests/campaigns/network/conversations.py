"""What is said between a pipeline and a server, each kind as one call that can be played again.

Rules:
- The server's content is made once, before the first conversation, and does not change: every play
  begins at the same place and must end with the same rows.
- Time limits are short, so that a stalled connection costs a play seconds.
- Tables are kept in memory (`tests.support.memory_sink`); the connections are the product's own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, get_args
from unittest import mock

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run import wiring
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.source.live.live import LiveSource
from cdc_pipeline.source.rows.table_reader import TableReader
from tests.servers import Server
from tests.source.rows.helpers import catalog_schema
from tests.support.captures import here, live
from tests.support.comparison import source_values
from tests.support.memory_sink import MemoryLake, memory_sink

Name = Literal["capture", "capture_by_gtid", "load", "rows", "doctor"]
NAMES: Final[tuple[Name, ...]] = get_args(Name)
Rows = dict[str, list[Any]]

_LOCK_WAIT_S = 5.0  # a place that a server lies about is never reached
_TIMEOUTS: Final = {"connect_timeout_s": 1, "read_timeout_s": 1, "row_timeout_s": 1}


@dataclass
class Shop:
    """A database with tables whose changes the server's log holds. `source`: section of a pipeline
    that reads the server; `starts`: where captures begin: by journal and offset, and by GTIDs;
    `schemas`: the tables' columns; `rows`: the tables as the server has them. Both are asked for
    once: the server may be stopped during a play.
    """

    server: Server
    database: str
    source: dict[str, Any]
    starts: dict[str, Any] = field(default_factory=dict)
    schemas: list[TableSchema] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)

    @classmethod
    def at(cls, server: Server, database: str) -> Shop:
        shop = cls(server, database, live(server))
        server.execute_all(
            f"USE `{database}`",
            "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(40), n DECIMAL(10, 2))",
            "CREATE TABLE b (id BIGINT PRIMARY KEY, body LONGBLOB)",
        )
        shop.starts = {"offset": here(server)}
        gtids = server.gtid_set() if server.variable("log_bin") == "1" else ""
        shop.starts["gtid"] = {"gtid_set": gtids} if gtids else shop.starts["offset"]
        server.execute_all(
            "INSERT INTO a VALUES (1, 'one', 1.5), (2, 'two', NULL), (3, 'three', -3.25)",
            "BEGIN",
            "UPDATE a SET v = 'zwei' WHERE id = 2",
            "INSERT INTO b VALUES (1, REPEAT('x', 300000)), (2, NULL)",
            "COMMIT",
            "ALTER TABLE a ADD COLUMN w INT DEFAULT 7",
            "INSERT INTO a VALUES (4, 'four', 4, 4)",
            "DELETE FROM a WHERE id = 1",
            "INSERT INTO a SELECT id + 10, v, n, w FROM a",
            "UPDATE b SET body = REPEAT('y', 200000) WHERE id = 1",
        )
        shop.schemas = [catalog_schema(server, database, table) for table in "ab"]
        shop.rows = {
            schema.full_name: sorted(
                server.query(f"SELECT * FROM `{database}`.`{schema.table}`"), key=repr
            )
            for schema in shop.schemas
        }
        return shop


@dataclass
class Play:
    """One conversation: a pipeline with a state of its own. `name`: which; `tls`: mode of the
    connections.
    """

    shop: Shop
    name: Name
    tls: str
    folder: Path
    lake: MemoryLake = field(default_factory=MemoryLake)
    cursors: MemoryCursorStore = field(default_factory=MemoryCursorStore)

    def run(self, port: int) -> Rows:
        """Play it through a port; the rows at its end. A later call goes on from what is there.
        Raises Exception: as the pipeline ends.
        """
        config = self.config(port)
        play: dict[Name, Callable[[PipelineConfig], Rows]] = {
            "capture": self._capture,
            "capture_by_gtid": self._capture,
            "load": self._load,
            "rows": self._rows,
            "doctor": self._doctor,
        }
        return play[self.name](config)

    def config(self, port: int) -> PipelineConfig:
        start = "gtid" if self.name == "capture_by_gtid" else "offset"
        return PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": {
                    **self.shop.source,
                    **_TIMEOUTS,
                    "port": port,
                    "tls": {"mode": self.tls},
                },
                "tables": {"include": [f"{self.shop.database}.*"]},
                "start": "latest" if self.name == "load" else self.shop.starts[start],
                "snapshot": {"lock_wait_s": _LOCK_WAIT_S},
                "sink": {"lake_path": self.folder / "lake"},
            }
        )

    def _capture(self, config: PipelineConfig) -> Rows:
        sink = memory_sink(self.lake, source=config.name, config=config.sink)
        capture(config, cursors=self.cursors, sink=sink)
        return self._kept(config)

    def _load(self, config: PipelineConfig) -> Rows:
        with self._in_memory():
            take_snapshot(config, cursors=self.cursors)
        return self._kept(config)

    def _in_memory(self) -> AbstractContextManager[Any]:
        return mock.patch.object(wiring, "DeltaSink", partial(memory_sink, self.lake))

    def _kept(self, config: PipelineConfig) -> Rows:
        paths = LakePaths(config.sink.lake_path, config.name)
        kept = {name: paths.table(name) for name in self.shop.rows}
        return {
            name: sorted(map(source_values, self.lake.rows(folder)), key=repr)
            for name, folder in kept.items()
            if folder in self.lake.tables
        }

    def _rows(self, config: PipelineConfig) -> Rows:
        assert config.source.kind == "live"
        found: Rows = {}
        with TableReader(config.source, batch_bytes=1 << 16) as reader:
            for schema in self.shop.schemas:
                reader.begin_view()
                parts = list(reader.select(schema, batch_rows=2))
                reader.end_view()
                found[schema.full_name] = sorted(
                    (tuple(row.values()) for part in parts for row in part.rows.to_pylist()),
                    key=repr,
                )
        return found

    def _doctor(self, config: PipelineConfig) -> Rows:
        assert config.source.kind == "live"
        with closing(LiveSource(config.source, pipeline_name=config.name)) as source:
            source.check()
            source.warnings([f"{self.shop.database}.a"])
            assert source.end_position().order >= source.earliest_position().order
            source.validate_position(source.end_position())
        return self.shop.rows
