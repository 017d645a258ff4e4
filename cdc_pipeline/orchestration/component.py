"""The component ``cdc_pipeline.CdcComponent``: pipelines as a folder with a ``defs.yaml``.

Rules:
- It builds what `build_definitions` builds, from the same parts: a broken pipeline breaks its own
  assets alone, and references such as ``${NAME}`` are resolved when a run begins.
- `translation` is for Delta tables, like that of other integrations: its key is also the key of
  their events.
"""

# No postponed annotations in this module: Dagster reads the attributes' own.
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field

from cdc_pipeline.config.mistakes import COMPONENT_FILE
from cdc_pipeline.config.pipeline_config import (
    PipelineConfig,
    PipelineDocument,
    list_config_files,
    read_document,
)
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.definitions import build_source, is_wanted
from cdc_pipeline.orchestration.names import identifier
from cdc_pipeline.orchestration.resource import CdcResource
from cdc_pipeline.orchestration.translator import CdcTranslator

_SCAFFOLD = """\
# One pipeline: a database, its tables, and the lake that they are kept in.
# `cdc-pipeline --jobs {folder} doctor {source}` says what would keep it from working.
source:
  kind: live
  host: {host}
  user: {user}
  password: "${{{variable}}}"   # resolved when a run begins
tables:
  include: ["{tables}"]
start: latest
sink:
  lake_path: {lake_path}
"""


@dataclass(frozen=True)
class CdcTable:
    """A Delta table, as templates of `translation` see it: ``{{ source }}``, ``{{ schema }}``,
    ``{{ table }}``."""

    source: str
    name: str

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the templates' variables."""
        schema, _, table = self.name.partition(".")
        return {"source": self.source, "schema": schema, "table": table}


class CdcScaffoldParams(BaseModel):
    """What `dg scaffold` may be given."""

    host: str = Field(default="db.example", description="Address of the database server.")
    user: str = Field(default="cdc", description="Account of the pipeline.")
    tables: str = Field(default="*.*", description="Pattern of the tables, such as shop.*.")
    lake_path: str = Field(
        default="lake", description="Folder or address of the lake; relative to the component."
    )


class CdcScaffolder(dg.Scaffolder[CdcScaffoldParams]):
    """Makes ``defs.yaml`` and a pipeline beside it that loads as it is."""

    @classmethod
    def get_scaffold_params(cls) -> type[CdcScaffoldParams]:
        """Return the model of the command's options."""
        return CdcScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[CdcScaffoldParams]) -> None:
        """Write the component's files."""
        source = identifier(request.target_path.name)
        params = request.params or CdcScaffoldParams()
        request.target_path.mkdir(parents=True, exist_ok=True)
        root = request.project_root
        within = root is not None and request.target_path.is_relative_to(root)
        folder = request.target_path.relative_to(root) if root and within else request.target_path
        (request.target_path / f"{source}.yaml").write_text(
            _SCAFFOLD.format(
                **params.model_dump(),
                folder=folder,
                source=source,
                variable=f"{source.upper()}_PASSWORD",
            ),
            encoding="utf-8",
        )
        dg.scaffold_component(request, {"path": f"{source}.yaml"})


@dg.scaffold_with(CdcScaffolder)
@dataclass
class CdcComponent(dg.Component, dg.Resolvable):
    """Keep tables of MySQL and MariaDB as Delta Lake tables, by bounded CDC runs."""

    path: Annotated[
        str | None,
        dg.Resolver.default(
            description="A pipeline's YAML file, or a folder of them; relative to the component."
        ),
    ] = None
    pipeline: Annotated[
        dict[str, Any] | None,
        dg.Resolver.default(
            description="One pipeline, as in a YAML file; `name` is the source's, by default the "
            "component's folder."
        ),
    ] = None
    environment: Annotated[
        dict[str, str],
        dg.Resolver.default(
            description="Variable of the pipelines -> the process's variable that has its value."
        ),
    ] = field(default_factory=dict)
    translation: (
        Annotated[
            TranslationFn[CdcTable],
            TranslationFnResolver[CdcTable](lambda data: data.variables),
        ]
        | None
    ) = None

    @property
    def resource(self) -> CdcResource:
        """Return what captures the pipelines. Override it to take variables from elsewhere."""
        return CdcResource(
            environment={name: dg.EnvVar(of) for name, of in self.environment.items()}
        )

    @property
    def translator(self) -> CdcTranslator:
        """Return the translator of the pipelines; override it to use one of your own."""
        return CdcTranslator()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build assets, checks, jobs and schedules of every pipeline."""
        translator = self.translator
        if self.translation is not None:
            translator = _Translated(translator, self.translation)
        cdc = self.resource
        return dg.Definitions.merge(
            *(
                build_source(read, name=name, file=file, translator=translator, cdc=cdc)
                for name, file, read in self._pipelines(context.path, cdc)
                if is_wanted(name, translator)
            )
        )

    def _pipelines(self, folder: Path, cdc: CdcResource) -> Iterator[tuple[str, Path, Any]]:
        """Yield name, file and reader of each pipeline."""
        if (self.path is None) == (self.pipeline is None):
            raise ConfigError(
                f"{folder / COMPONENT_FILE} does not say where its pipelines are",
                expected="one of `path`, a YAML file or a folder of them, and `pipeline`",
                got="both" if self.path is not None else "neither",
            )
        if self.pipeline is not None:
            content = dict(self.pipeline)
            name = str(content.pop("name", identifier(folder.name)))
            file = folder / COMPONENT_FILE
            yield name, file, partial(PipelineDocument, name, file, content, cdc.variables())
            return
        at = folder / str(self.path)
        for file in list_config_files(at) if at.is_dir() else [at]:
            yield file.stem, file, partial(read_document, file, environment=cdc.variables())


class _Translated(CdcTranslator):
    """A translator whose specs of Delta tables pass through the component's `translation`."""

    def __init__(self, base: CdcTranslator, translation: TranslationFn[CdcTable]) -> None:
        self._base = base
        self._translation = translation

    def table_key(self, source: str, table: str) -> dg.AssetKey:
        """Return the key that `translation` gives a Delta table."""
        spec = dg.AssetSpec(self._base.table_key(source, table))
        return self._translation(spec, CdcTable(source, table)).key

    def table_spec(
        self, config: PipelineConfig, table: str, cut: Cut | None, *, sources: Any = ()
    ) -> dg.AssetSpec:
        """Return the spec of a Delta table after `translation`."""
        spec = self._base.table_spec(config, table, cut, sources=sources)
        return self._translation(spec, CdcTable(config.name, table))
