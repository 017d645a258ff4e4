"""Write a capture's figures to a file, in the text format of OpenMetrics.

Rules:
- The file is replaced as a whole when a capture ends, also when it fails.
- Counters go on from what the file holds: without it they begin at zero, as after a restart.
- What cannot be measured is left out, never zero.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import proof_file
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CaptureReport
from cdc_pipeline.run.telemetry.measures import Distance, distance
from cdc_pipeline.run.telemetry.open_metrics import Metric, as_text, labelled, values_of

_log = logging.getLogger(__name__)
_PREFIX: Final = "cdc_pipeline_"
_OPERATIONS: Final = ("inserted", "updated", "deleted")


class MetricsObserver(RunObserver):
    """Counts one capture, and replaces the file when it ends, so that nobody sees half of it."""

    def __init__(self, config: PipelineConfig, file: Path) -> None:
        self._config = config
        self._file = file
        self._began_s = time.monotonic()
        self._batches = 0
        self._rows: Counter[tuple[str, str]] = Counter()
        self._cut: Cut | None = None

    def published(self, cut: Cut) -> None:
        self._batches += 1
        self._cut = cut
        for name, table in cut.tables.items():
            for operation in _OPERATIONS:
                rows = getattr(table, f"rows_{operation}")
                if rows:
                    self._rows[name, operation] += rows

    def ended(self, report: CaptureReport) -> None:
        self._write(report.cursor, has_succeeded=True)

    def failed(self, error: BaseException) -> None:  # noqa: ARG002
        self._write(None, has_succeeded=False)

    def _write(self, cursor: CursorState | None, *, has_succeeded: bool) -> None:
        try:
            metrics = self._metrics(cursor, has_succeeded=has_succeeded)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # Collectors read files that end in .prom: this one is not yet for them.
            begun = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            begun.write_text(as_text(metrics), encoding="utf-8")
            begun.chmod(0o644)
            begun.replace(self._file)
        except (OSError, CdcError) as error:
            _log.warning("the metrics of %s are not written: %s", self._config.name, error)

    def _metrics(self, cursor: CursorState | None, *, has_succeeded: bool) -> list[Metric]:
        cut = self._cut or state.last_cut(LakePaths.of(self._config))
        at = cursor or (None if cut is None else cut.cursor)
        try:
            away = (
                Distance()
                if at is None
                else distance(
                    self._config, at, source_time_us=-1 if cut is None else cut.source_time_us
                )
            )
        except CdcError:  # the server is away: its figures are unknown
            away = Distance()
        before = self._before()
        source = {"source": self._config.name}

        def gauge(name: str, text: str, value: float | None, unit: str = "") -> Metric:
            samples = {} if value is None else {labelled(source): value}
            return Metric(f"{_PREFIX}{name}", "gauge", text, samples, unit)

        def counter(name: str, text: str, added: Sequence[tuple[dict[str, str], int]]) -> Metric:
            samples = dict(before.get(f"{_PREFIX}{name}_total", {}))
            for labels, count in added:
                key = labelled(source | labels)
                samples[key] = samples.get(key, 0) + count
            return Metric(f"{_PREFIX}{name}", "counter", text, dict(sorted(samples.items())))

        last_success = before.get(f"{_PREFIX}last_success_timestamp_seconds", {})
        succeeded_s = time.time() if has_succeeded else last_success.get(labelled(source))
        outcome = "succeeded" if has_succeeded else "failed"
        return [
            gauge("lag_seconds", _LAG, away.lag_s, "seconds"),
            gauge("unread_bytes", _UNREAD, away.unread_bytes, "bytes"),
            gauge("retention_headroom_seconds", _HEADROOM, away.headroom_s, "seconds"),
            gauge("suspended_tables", _SUSPENDED, None if at is None else len(at.suspended)),
            gauge("last_run_seconds", _SECONDS, time.monotonic() - self._began_s, "seconds"),
            gauge("last_run_succeeded", _SUCCEEDED, int(has_succeeded)),
            gauge("last_success_timestamp_seconds", _LAST_SUCCESS, succeeded_s, "seconds"),
            *self._proved(),
            counter("runs", _RUNS, [({"outcome": outcome}, 1)]),
            counter("batches", _BATCHES, [({}, self._batches)]),
            counter(
                "rows_applied",
                _ROWS,
                [
                    ({"table": table, "operation": operation}, rows)
                    for (table, operation), rows in self._rows.items()
                ],
            ),
        ]

    def _proved(self) -> list[Metric]:
        if self._config.verify is None:
            return []
        proofs = proof_file(LakePaths.of(self._config)).read()
        samples = {
            labelled({"source": self._config.name, "table": name}): proof.proved.began_at_us / 1e6
            for name, proof in proofs.tables.items()
            if proof.proved is not None
        }
        name = f"{_PREFIX}proved_through_timestamp_seconds"
        return [Metric(name, "gauge", _PROVED, samples, "seconds")]

    def _before(self) -> dict[str, dict[str, float]]:
        try:
            return values_of(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}


_LAG: Final = "0 at the end of the log, else the age of the last applied transaction."
_UNREAD: Final = "Bytes of the log that no capture has read."
_HEADROOM: Final = "Time until the source may purge what is still needed."
_SUSPENDED: Final = "Tables that do not follow the source."
_SECONDS: Final = "How long the last capture took."
_SUCCEEDED: Final = "1 if the last capture succeeded, 0 if it failed."
_LAST_SUCCESS: Final = "When the last successful capture ended."
_PROVED: Final = "When the table's last whole pass of the rolling proof began, by the run before."
_RUNS: Final = "Captures."
_BATCHES: Final = "Published batches."
_ROWS: Final = "Row changes that were applied to tables of the lake."
