"""Tell data catalogs of a capture by events of OpenLineage, through the project's own client.

Rules:
- A capture is a run of the job ``SOURCE.capture``. It is started when its plan is known; one that
  fails before that is started and failed at once.
- Inputs are the captured tables, as ``mysql://HOST:PORT`` and ``schema.table``, or an archive's
  folder; outputs are the Delta tables by their address, with their columns.
- An event names no row values, no settings and no secrets.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, OpenLineageConfig, PipelineConfig
from cdc_pipeline.config.storage_config import LakeUri
from cdc_pipeline.errors import CdcError, RuntimeSetupError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CapturePlan, CaptureReport
from cdc_pipeline.version import __version__

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset

_log = logging.getLogger(__name__)
_PRODUCER: Final = f"urn:cdc-pipeline:{__version__}"
_BUCKETS: Final = {"s3a": "s3", "gs": "gs", "abfss": "abfss"}


class LineageObserver(RunObserver):
    """RuntimeSetupError: the client is not installed, or refuses its transport."""

    def __init__(self, config: PipelineConfig, lineage: OpenLineageConfig, *, run_id: str) -> None:
        if find_spec("openlineage") is None:
            raise RuntimeSetupError(
                "openlineage is configured, and its client is not installed",
                setting="openlineage",
                next_step="pip install 'cdc-pipeline[openlineage]', or remove the section",
            )
        self._config = config
        self._namespace = lineage.namespace
        self._client = _client(lineage)
        self._run_id = _uuid_of(run_id)
        self._plan: CapturePlan | None = None
        self._tables: dict[str, Any] = {}
        self._rows: dict[str, int] = {}
        self._has_started = False

    def planned(self, plan: CapturePlan) -> None:
        self._plan = plan
        self._start()

    def published(self, cut: Cut) -> None:
        self._tables = dict(cut.tables)
        for name, table in cut.tables.items():
            self._rows[name] = self._rows.get(name, 0) + table.row_changes

    def ended(self, report: CaptureReport) -> None:  # noqa: ARG002
        self._start()
        self._emit("COMPLETE")

    def failed(self, error: BaseException) -> None:
        self._start()
        is_stopped = not isinstance(error, Exception)
        self._emit("ABORT" if is_stopped else "FAIL", error=error)

    def _start(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._emit("START")

    def _emit(self, state: str, *, error: BaseException | None = None) -> None:
        try:
            self._client.emit(self._event(state, error))
        except Exception as refused:  # of any transport; nobody who watches may fail a run
            _log.warning(
                "the %s event of %s is not sent: %s: %s",
                state,
                self._config.name,
                type(refused).__name__,
                refused,
            )

    def _event(self, state: str, error: BaseException | None) -> Any:
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, job_type_job

        facets: dict[str, Any] = {}
        if error is not None:
            # The first sentence: got and expected may quote what comes from a server.
            what = error.what if isinstance(error, CdcError) else type(error).__name__
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=what, programmingLanguage="PYTHON", producer=_PRODUCER
            )
        kind = job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="CDC_PIPELINE", jobType="JOB", producer=_PRODUCER
        )
        return RunEvent(
            eventType=RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            producer=_PRODUCER,
            run=Run(runId=self._run_id, facets=facets),
            job=Job(
                namespace=self._namespace,
                name=f"{self._config.name}.capture",
                facets={"jobType": kind},
            ),
            inputs=self._inputs(),
            outputs=self._outputs(with_counts=state == "COMPLETE"),
        )

    def _inputs(self) -> list[InputDataset]:
        from openlineage.client.event_v2 import InputDataset

        source = self._config.source
        if not isinstance(source, LiveSourceConfig):
            return [InputDataset(namespace="file", name=str(source.directory))]
        server = f"mysql://{source.address}"
        return [InputDataset(namespace=server, name=name) for name in self._sources()]

    def _sources(self) -> Sequence[str]:
        if self._plan is not None and self._plan.tables:
            return self._plan.tables
        return sorted(
            {one for name, table in self._tables.items() for one in table.spec.sources_of(name)}
        )

    def _outputs(self, *, with_counts: bool) -> list[OutputDataset]:
        from openlineage.client.event_v2 import OutputDataset
        from openlineage.client.facet_v2 import output_statistics_output_dataset, schema_dataset

        paths = LakePaths.of(self._config)
        planned = () if self._plan is None else self._plan.targets
        outputs = []
        for name in sorted({*(target.target for target in planned), *self._tables}):
            facets: dict[str, Any] = {}
            table = self._tables.get(name)
            if table is not None:
                facets["schema"] = schema_dataset.SchemaDatasetFacet(
                    fields=[
                        schema_dataset.SchemaDatasetFacetFields(
                            name=column.name, type=column.delta_type
                        )
                        for column in table.spec.columns
                    ],
                    producer=_PRODUCER,
                )
            counts: dict[str, Any] = {}
            if with_counts and self._rows.get(name):
                counts["outputStatistics"] = (
                    output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                        rowCount=self._rows[name], producer=_PRODUCER
                    )
                )
            namespace, address = _dataset(paths.table(name))
            outputs.append(
                OutputDataset(namespace=namespace, name=address, facets=facets, outputFacets=counts)
            )
        return outputs


def _dataset(path: Path | LakeUri) -> tuple[str, str]:
    if not isinstance(path, LakeUri):
        return "file", str(path)
    return f"{_BUCKETS[path.scheme]}://{path.authority}", "/".join(path.parts)


def _client(lineage: OpenLineageConfig) -> Any:
    from openlineage.client import OpenLineageClient

    config = None if lineage.transport is None else {"transport": lineage.transport}
    try:
        return OpenLineageClient(config=config)
    except Exception as error:  # whatever a transport refuses
        raise RuntimeSetupError(
            "the client of OpenLineage refuses its transport",
            setting="openlineage.transport",
            expected="a type and its settings, as the documentation of openlineage-python lists "
            "them",
            got=type(error).__name__,
            next_step="correct openlineage.transport; {type: console} shows the events in the log",
        ) from None


def _uuid_of(run_id: str) -> str:
    try:
        return str(uuid.UUID(run_id))
    except ValueError:
        return str(uuid.uuid4())
