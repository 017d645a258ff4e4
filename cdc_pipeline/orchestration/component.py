"""The component ``cdc_pipeline.CdcComponent``: pipelines as a folder with a ``defs.yaml``.

Rules:
- It builds what `build_definitions` builds, from the same parts: a broken pipeline breaks its own
  assets alone, and references such as ``${NAME}`` are resolved when a run begins.
- `translation` is for Delta tables, like that of other integrations: its key is also the key of
  their events.
"""

# No postponed annotations in this module: Dagster reads the attributes' own.
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field

from cdc_pipeline.config.pipeline_config import PipelineConfig, PipelineDocument, list_config_files
from cdc_pipeline.config.validation_errors import COMPONENT_FILE
from cdc_pipeline.config.yaml_text import YamlText, read_yaml
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.definitions import (
    build_source,
    is_wanted,
    outline_checked,
    outline_of,
)
from cdc_pipeline.orchestration.resource import CdcResource
from cdc_pipeline.orchestration.translator import CdcTranslator

_Outline = Callable[[], PipelineConfig]
_SCAFFOLD: Final = """\
# One pipeline: a database, its tables, and the lake that they are kept in.
# `cdc-pipeline --jobs {folder} doctor {source}` says what would keep it from working.
source:
  kind: live
  host: {host}
  user: {user}
  password: "${{{variable}}}"   # resolved when a run begins
tables:
  include: [{tables}]
start: latest
sink:
  lake_path: {lake_path}
"""
_SCAFFOLD_PYTHON: Final = """\
import dagster as dg
from cdc_pipeline import CdcComponent


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> CdcComponent:
    return CdcComponent(path="{file}")
"""


@dataclass(frozen=True)
class CdcTable:
    """A Delta table, as templates of `translation` see it: ``{{ source }}``, ``{{ schema }}``,
    ``{{ table }}``."""

    source: str
    name: str

    @property
    def variables(self) -> Mapping[str, str]:
        schema, _, table = self.name.partition(".")
        return {"source": self.source, "schema": schema, "table": table}


class CdcScaffoldParams(BaseModel):
    """What `dg scaffold` may be given."""

    host: str = Field(default="db.example", description="Address of the database server.")
    user: str = Field(default="cdc", description="Account of the pipeline.")
    tables: str = Field(default="*.*", description="Pattern of the tables, such as shop.*.")
    lake_path: str = Field(
        default="",
        description="Folder or address of the lake; a folder is relative to the component. By "
        "default the folder lake of the project.",
    )


class CdcScaffolder(dg.Scaffolder[CdcScaffoldParams]):
    """Makes a pipeline and the component that loads it."""

    @classmethod
    def get_scaffold_params(cls) -> type[CdcScaffoldParams]:
        return CdcScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[CdcScaffoldParams]) -> None:
        folder, root = request.target_path, request.project_root or request.target_path
        source = _source_name(folder)
        file = folder / f"{source}.yaml"
        params = request.params or CdcScaffoldParams()
        lake = params.lake_path or Path(os.path.relpath(root / "lake", folder)).as_posix()
        quoted = {"host": params.host, "user": params.user, "tables": params.tables}
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(
            _SCAFFOLD.format(
                **{name: json.dumps(text) for name, text in quoted.items()},
                lake_path=json.dumps(lake),
                folder=Path(os.path.relpath(folder, root)).as_posix(),
                source=source,
                variable=f"{source.upper()}_PASSWORD",
            ),
            encoding="utf-8",
        )
        if request.scaffold_format == "python":
            text = _SCAFFOLD_PYTHON.format(file=file.name)
            (folder / "component.py").write_text(text, encoding="utf-8")
        else:
            dg.scaffold_component(request, {"path": file.name})


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
    ] = field(default=None, repr=False)  # it may hold what is secret
    environment: Annotated[
        dict[str, str],
        dg.Resolver.default(
            description="Variable of the pipelines -> the process's variable that has its value."
        ),
    ] = field(default_factory=dict)
    translation: (
        Annotated[
            TranslationFn[CdcTable], TranslationFnResolver[CdcTable](lambda data: data.variables)
        ]
        | None
    ) = None

    @property
    def resource(self) -> CdcResource:
        """Return what captures; override it to take variables from elsewhere."""
        return CdcResource(
            environment={name: dg.EnvVar(of) for name, of in self.environment.items()}
        )

    @property
    def translator(self) -> CdcTranslator:
        """Return the translator; override it to use your own."""
        return CdcTranslator()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build assets, checks, jobs and schedules of every pipeline."""
        translator = self.translator
        if self.translation is not None:
            translator = _translated(translator, self.translation)
        cdc = self.resource
        return dg.Definitions.merge(
            *(
                build_source(outline, name=name, file=file, translator=translator, cdc=cdc)
                for name, file, outline in self._pipelines(context.path, cdc)
                if is_wanted(name, translator)
            )
        )

    def _pipelines(self, at: Path, cdc: CdcResource) -> Iterator[tuple[str, Path, _Outline]]:
        """Name and file of each pipeline, and what returns its outline."""
        folder = at if at.is_dir() else at.parent  # a component in Python has its file's path
        file = folder / COMPONENT_FILE
        name = _source_name(folder)
        if (self.path is None) == (self.pipeline is None):
            got = "both" if self.path is not None else "neither"
            yield name, file, partial(_refuse, file, got)
        elif self.pipeline is not None:
            content = dict(self.pipeline)
            name = str(content.pop("name", name))
            yield name, file, partial(_outline, name, file, content, cdc)
        else:
            written = folder / str(self.path)
            for one in list_config_files(written) if written.is_dir() else [written]:
                yield one.stem, one, partial(outline_of, one, cdc)


def _outline(name: str, file: Path, content: dict[str, Any], cdc: CdcResource) -> PipelineConfig:
    return outline_checked(PipelineDocument(name, file, content, cdc.variables(), _text_in(file)))


def _refuse(file: Path, got: str) -> PipelineConfig:
    raise ConfigError(
        f"{file} does not say where its pipelines are",
        expected="one of `path`, a YAML file or a folder of them, and `pipeline`",
        got=got,
        next_step=f"write one of them under `attributes` in {file}",
    )


def _source_name(folder: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", folder.name)
    return name if name[:1].isalpha() else f"source_{name}"


def _text_in(file: Path) -> YamlText:
    try:
        text = read_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return YamlText()
    return text.below("attributes.pipeline")


def _translated(base: CdcTranslator, translation: TranslationFn[CdcTable]) -> CdcTranslator:
    """Like `base`, but specs of Delta tables pass through `translation`."""

    class Translated(type(base)):  # type: ignore[misc]
        def table_key(self, source: str, table: str) -> dg.AssetKey:
            spec = dg.AssetSpec(base.table_key(source, table))
            return translation(spec, CdcTable(source, table)).key

        def table_spec(
            self, config: PipelineConfig, table: str, cut: Cut | None, **given: Any
        ) -> dg.AssetSpec:
            spec = base.table_spec(config, table, cut, **given)
            return translation(spec, CdcTable(config.name, table))

    translator: Any = copy(base)
    translator.__class__ = Translated
    return translator  # type: ignore[no-any-return]
