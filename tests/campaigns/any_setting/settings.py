"""Each setting of a pipeline: what is tried of it, or why it is not.

A test holds that every setting of the configuration is in one of the two lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.section import sections_in, setting_name

MAY_NOT_CHANGE_ROWS: Final[dict[str, tuple[Any, ...]]] = {
    "store.kind": ("memory", "file", "mixed"),
    "store.ring_events": (2, 4, 8, 64, 1024),
    "store.batch_mode": ("itemsize", "memsize"),
    "store.memory_unit_bytes": (1, 100, 4096),
    "store.directory": ("{folder}/elsewhere",),
    "store.disk_bytes_max": (64 << 20,),
    "batch.get_bytes": (1, 300, 4096),
    "batch.merge_staged_bytes": (1, 2000),
    "batch.merge_rows": (1, 2, 7),
    "batch.decode": ("driver", "executors"),
    "batch.executors_bytes_min": (0,),
    "source.unpacked_bytes_max": (1 << 20,),
    "sink.merge_threads": (1, 2, 16),
    "sink.batch_timeout_s": (600,),
    "sink.cut_retention": ("1 second",),
    "metrics": ("{folder}/metrics",),
    "tables.allow_empty": (True,),
}
"""Settings that may not change rows, and what is tried of them; `{folder}` is one of the play."""

_OF_A_LIVE_SOURCE = "a connection to a server; an archive is played"
_OF_DELTA = "Delta's files and Spark's engine; there are none in memory"
_OF_DAGSTER = "Dagster, outside a run"
NOT_TRIED: Final[dict[str, str]] = {
    # -- settings that do change rows
    "name": "names the lake's own folders",
    "source.kind": "which log is read",
    "source.directory": "which log is read",
    "source.lower_case_table_names": "which names are one table",
    "tables.include": "which tables are captured",
    "tables.exclude": "which tables are captured",
    "tables.shadow_tables": "which tables an online schema change may use",
    "targets": "which targets there are, and what their rows hold",
    "schema_changes": "what a DDL does to rows",
    "start": "where reading begins",
    "bound": "where a run ends: the campaign that cuts anywhere plays it",
    "accept": "what would stop a run, and is lost or kept twice instead",
    "sink.mode": "what the rows of a target are",
    "sink.on_invalid_value": "what becomes of values that do not fit",
    "sink.zero_dates": "what becomes of values that do not fit",
    "sink.rescued_column": "whether a target has a column of rescued values",
    "sink.on_bad_row": "what becomes of rows that cannot be applied",
    # -- settings that do not, and are not of a capture in memory
    "source.host": _OF_A_LIVE_SOURCE,
    "source.port": _OF_A_LIVE_SOURCE,
    "source.user": _OF_A_LIVE_SOURCE,
    "source.password": _OF_A_LIVE_SOURCE,
    "source.password_command": _OF_A_LIVE_SOURCE,
    "source.flavor": _OF_A_LIVE_SOURCE,
    "source.tls": _OF_A_LIVE_SOURCE,
    "source.replica_server_id": _OF_A_LIVE_SOURCE,
    "source.connect_timeout_s": _OF_A_LIVE_SOURCE,
    "source.read_timeout_s": _OF_A_LIVE_SOURCE,
    "source.row_timeout_s": _OF_A_LIVE_SOURCE,
    "source.packet_bytes_max": _OF_A_LIVE_SOURCE,
    "source.standby": _OF_A_LIVE_SOURCE,
    "source.fallback_interval_s": _OF_A_LIVE_SOURCE,
    "source.dump_errors_max": _OF_A_LIVE_SOURCE,
    "source.archive_directory": _OF_A_LIVE_SOURCE,
    "source.keep_journals": _OF_A_LIVE_SOURCE,
    "sink.lake_path": "where the lake is",
    "sink.storage": "where the lake is; the campaign of object stores plays it",
    "sink.engine": _OF_DELTA,
    "sink.reader_features": _OF_DELTA,
    "sink.properties": _OF_DELTA,
    "sink.catalog": _OF_DELTA,
    "sink.publish": _OF_DELTA,
    "sink.spark": _OF_DELTA,
    "snapshot": "loads, which read no log",
    "verify": "what is compared with a server; an archive is played",
    "maintenance": _OF_DELTA,
    "schedule": _OF_DAGSTER,
    "dagster": _OF_DAGSTER,
    "openlineage": "events to another service",
}
"""Settings, or sections, that are not tried: they change rows, or have no part in a play."""


def every_setting(model: type[BaseModel] = PipelineConfig, path: str = "") -> Iterator[str]:
    """Each setting as a path with dots, those of alternative sections one after the other."""
    for name, field in model.model_fields.items():
        here, sections = f"{path}{setting_name(name, field)}", sections_in(field.annotation)
        if not sections:
            yield here
        for section in sections:
            yield from every_setting(section, f"{here}.")
