"""Configuration of one pipeline: `jobs/<source>.yaml` as plain, validated values.

Rules:
- Every mistake of a file is reported at once, each with its path in the file (`validate_file`).
- ``${NAME}`` in any text is replaced from the environment; secrets come only that way and are never
  printed (`SecretStr`). A missing variable is reported like any other mistake.
- Definitions load as an outline: it keeps the references of secrets and of unset variables, so that
  a variable is missed by the run that needs it (`PipelineConfig.resolved`), not by Dagster's pages.
- Relative paths are relative to the YAML file's own directory.
- Defaults need no thought: a source and a lake path are enough.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from cdc_pipeline.config.dagster_config import DagsterConfig
from cdc_pipeline.config.references import References
from cdc_pipeline.config.schedules import Cron, Scheduled
from cdc_pipeline.config.schema_policy import (
    SHADOW_TABLES,
    SchemaChangePolicy,
    SchemaChanges,
    ShadowTemplates,
)
from cdc_pipeline.config.section import FileContext, Folder, Forms, LocalPath, Section, Takes
from cdc_pipeline.config.sink_config import READER_FEATURES as READER_FEATURES
from cdc_pipeline.config.sink_config import READER_PRESETS as READER_PRESETS
from cdc_pipeline.config.sink_config import CatalogConfig as CatalogConfig
from cdc_pipeline.config.sink_config import LakePath as LakePath
from cdc_pipeline.config.sink_config import MaintenanceConfig as MaintenanceConfig
from cdc_pipeline.config.sink_config import SinkConfig as SinkConfig
from cdc_pipeline.config.sink_config import SparkConfig as SparkConfig
from cdc_pipeline.config.storage_config import LakeUri
from cdc_pipeline.config.target_config import Patterns, TargetRule
from cdc_pipeline.config.units import Bytes, Duration, Seconds
from cdc_pipeline.config.validation_errors import COMPONENT_FILE, located, validation_errors
from cdc_pipeline.config.validation_errors import ConfigMistakes as ConfigMistakes
from cdc_pipeline.config.yaml_text import WHOLE_FILE, YamlText, read_yaml
from cdc_pipeline.config.yaml_text import Mistake as Mistake
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.text.table_names import NameRule

CONFIG_SUFFIXES: Final = (".yaml", ".yml")
SOURCE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")  # it becomes a folder's name, with suffixes


class TlsConfig(Section):
    """TLS to the server. `verify` checks certificate and host name; it is the default once TLS is
    on.

    `verify_ca` needs a `ca_file`: the system's authorities sign certificates for anyone, and the
    name is not checked. A mode that would not use a file refuses it.
    """

    mode: Literal["off", "preferred", "required", "verify_ca", "verify"] = "verify"
    ca_file: LocalPath | None = None
    certificate_file: LocalPath | None = None
    key_file: LocalPath | None = None

    @field_validator("mode", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML reads off without quotes as false

    @model_validator(mode="after")
    def _authority(self) -> TlsConfig:
        if self.mode == "verify_ca" and self.ca_file is None:
            raise ValueError(
                "verify_ca needs ca_file, the certificate of the server's own CA; or use verify"
            )
        if self.ca_file is not None and self.mode not in ("verify_ca", "verify"):
            raise ValueError(
                f"ca_file: mode {self.mode} checks no certificate, so the file would not be used: "
                "set mode to verify or verify_ca"
            )
        if (self.certificate_file or self.key_file) and self.mode in ("off", "preferred"):
            raise ValueError(
                f"certificate_file: with mode {self.mode} the connection may be plain text, which "
                "has no certificates: set mode to verify, verify_ca or required"
            )
        return self


class PositionConfig(Section):
    """A journal and an offset at an event boundary."""

    journal: str
    offset: int = Field(default=4, ge=4)


class TimeConfig(Section):
    """The first transaction that was committed at or after a moment. With a journal, in that
    journal only (SPEC P4, P8).
    """

    time: AwareDatetime
    journal: str | None = None


class GtidConfig(Section):
    """The set of transactions that count as executed."""

    gtid_set: str = Field(min_length=1)


class TransactionsBoundConfig(Section):
    """Stop after this many transactions."""

    transactions: int = Field(ge=1)


class GtidBoundConfig(Section):
    """Stop after the transaction with this GTID."""

    gtid: str = Field(min_length=1)


class TimeBoundConfig(Section):
    """Stop before the first transaction that was committed after this moment."""

    time: AwareDatetime


class BytesBoundConfig(Section):
    """Stop at the end of the transaction with which this many bytes of the log were read."""

    bytes: Bytes = Field(ge=1)


# The largest max_allowed_packet, with room for headers: no server sends more at once.
PACKET_BYTES_MAX: Final = (1 << 30) + (16 << 20)
UNPACKED_BYTES_MAX: Final = 4 << 30


class SecondsBoundConfig(Section):
    """Stop at the first end of a transaction after reading for this long."""

    seconds: Seconds = Field(gt=0)


_WITH_ZONE: Final = "; a time needs a zone, as in 2026-01-31T08:00:00+00:00"
Start = Annotated[
    Literal["earliest", "latest"] | PositionConfig | TimeConfig | GtidConfig,
    Forms(
        "earliest, latest, {journal: ..., offset: ...}, {time: ...} with or without a journal, or "
        "{gtid_set: ...}" + _WITH_ZONE
    ),
]
Bound = Annotated[
    Literal["end_of_log"]
    | PositionConfig
    | TransactionsBoundConfig
    | GtidBoundConfig
    | TimeBoundConfig
    | BytesBoundConfig
    | SecondsBoundConfig,
    Forms(
        "end_of_log, {journal: ..., offset: ...}, {gtid: ...}, {time: ...}, {transactions: ...}, "
        "{bytes: ...} or {seconds: ...}" + _WITH_ZONE
    ),
]


def _host(value: str) -> str:
    # Never shown: what stands before an @ may be a password (K26).
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if not re.fullmatch(r"[^\s@/:]+", value):
            raise ValueError(
                "is not the name or the address of a machine: user, password and port have "
                "settings of their own"
            ) from None
    return value


Host = Annotated[str, Takes("the name or the IP address of a machine"), AfterValidator(_host)]


class StandbyConfig(Section):
    """The server to use if the primary does not answer. Account and TLS are the primary's;
    `start` is its own (SPEC P4), because journals and offsets of the primary mean nothing
    there.
    """

    host: Host
    port: int = Field(default=3306, ge=1, le=65535)
    start: Start | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class KeepJournalsConfig(Section):
    """What is read of the log is kept, with the rows of all tables, in a folder of the source's
    name. An address in an object store has the settings of `sink.storage`.
    """

    path: LakePath
    retention: Duration | None = None
    compress: bool = False

    _is_read_only: bool = PrivateAttr(default=False)

    @property
    def is_read_only(self) -> bool:
        """In a side lake, which does not know what others still need."""
        return self._is_read_only

    def read_only(self) -> KeepJournalsConfig:
        copy = self.model_copy()
        copy._is_read_only = True
        return copy


class LiveSourceConfig(Section):
    """A running server (SPEC P5, P6)."""

    kind: Literal["live"]
    host: Host
    port: int = Field(default=3306, ge=1, le=65535)
    user: str
    password: SecretStr | None = None
    password_command: tuple[str, ...] = ()
    flavor: Literal["auto", "mysql", "mariadb"] = "auto"
    tls: TlsConfig = TlsConfig(mode="preferred")
    replica_server_id: int | None = Field(default=None, ge=1, le=2**32 - 1)
    connect_timeout_s: Seconds = Field(default=10, gt=0)
    read_timeout_s: Seconds = Field(default=60, gt=0)
    row_timeout_s: Seconds = Field(default=6 * 3600, gt=0)
    packet_bytes_max: Bytes = Field(default=PACKET_BYTES_MAX, ge=1 << 24, le=1 << 31)
    unpacked_bytes_max: Bytes = Field(default=UNPACKED_BYTES_MAX, ge=1 << 20)
    standby: StandbyConfig | None = None
    fallback_interval_s: Seconds = Field(default=60, ge=0)
    dump_errors_max: int = Field(default=2, ge=0)
    archive_directory: LocalPath | None = None
    keep_journals: KeepJournalsConfig | None = None

    @property
    def address(self) -> str:
        """``host:port``, as `ServerIdentity.address` has it."""
        return f"{self.host}:{self.port}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of primary and standby."""
        return (self.address,) if self.standby is None else (self.address, self.standby.address)

    @model_validator(mode="after")
    def _one_archive(self) -> LiveSourceConfig:
        if self.archive_directory is not None and self.keep_journals is not None:
            raise ValueError("has archive_directory or keep_journals, not both")
        return self

    @model_validator(mode="after")
    def _one_password(self) -> LiveSourceConfig:
        if (self.password is None) != bool(self.password_command):
            raise ValueError("needs password or password_command, one of them")
        return self


class ArchiveSourceConfig(Section):
    """A directory of journals. No journal says the `lower_case_table_names` of its server."""

    kind: Literal["archive"]
    directory: Folder
    lower_case_table_names: Literal[0, 1, 2] = 0
    unpacked_bytes_max: Bytes = Field(default=UNPACKED_BYTES_MAX, ge=1 << 20)


class AcceptConfig(Section):
    """Conditions that would stop a run, accepted by name (K5, K7, K8, K29). Each acceptance that
    is used is recorded in the run and its cut.
    """

    unproved_journal_ends: tuple[str, ...] = ()
    unknown_xa: tuple[str, ...] = ()
    statements: Patterns = ("mysql.rds_*", "percona.heartbeat", "percona.checksums")
    overlap: tuple[str, ...] = ()


class TablesConfig(Section):
    """Which tables are captured. A pattern of `include` that has never matched a table fails the
    run, unless `allow_empty` permits it.
    """

    include: Patterns = ("*.*",)
    exclude: Patterns = ()
    allow_empty: bool = False
    shadow_tables: ShadowTemplates = SHADOW_TABLES


class StoreConfig(Section):
    """The event store between reader and drain.

    `mixed` keeps `ring_events * memory_unit_bytes` (including the events' rows) in memory and
    then spills to files, so that the reader continues while tables are merged (the reader of
    an archive waits: its journals are files already); `memory` makes every reader wait;
    `file` keeps everything in files. Files are readable by their owner alone, and deleted
    when the run ends or at the next start.
    """

    kind: Literal["memory", "file", "mixed"] = "mixed"
    ring_events: int = Field(default=65536, ge=2)
    batch_mode: Literal["memsize", "itemsize"] = "memsize"
    memory_unit_bytes: Bytes = Field(default=1024, ge=1)
    directory: Folder | None = None
    disk_bytes_max: Bytes = Field(default=16 << 30, ge=64 << 20)

    @field_validator("ring_events")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError(f"{value} is not a power of two, such as 16384 or 65536")
        return value


class BatchConfig(Section):
    """How much one get takes from the store, and how much one merge batch holds."""

    get_bytes: Bytes = Field(default=16 << 20, ge=1)
    merge_staged_bytes: Bytes = Field(default=256 << 20, ge=1)
    merge_rows: int = Field(default=5_000_000, ge=1)
    decode: Literal["auto", "driver", "executors"] = "auto"
    executors_bytes_min: Bytes = Field(default=4 << 30, ge=0)


class SnapshotConfig(Section):
    """How a snapshot reads tables."""

    chunk_rows: int = Field(default=500_000, ge=1)
    chunk_bytes: Bytes = Field(default=128 << 20, ge=1)
    readers: int = Field(default=2, ge=1, le=32)
    lock_wait_s: Seconds = Field(default=3600, ge=0)
    attempts_max: int = Field(default=3, ge=1)


class EachRunConfig(Section):
    """How much each run compares: rows, seconds, or what is reached first of both."""

    rows: int | None = Field(default=None, ge=100)
    seconds: Seconds | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _has_a_budget(self) -> EachRunConfig:
        if self.rows is None and self.seconds is None:
            raise ValueError("neither rows nor seconds: name one of them, or both")
        return self


class VerifyConfig(Section):
    """The rolling proof: each run compares the next rows with the server."""

    each_run: EachRunConfig
    on_difference: Literal["warn", "suspend"] = "warn"
    pass_age_max_s: Seconds = Field(default=7 * 86400, gt=0)
    failed_runs_max: int = Field(default=3, ge=1)


class OpenLineageConfig(Section):
    """Events of each capture, for data catalogs. Needs the extra `openlineage`."""

    namespace: str = Field(default="cdc_pipeline", min_length=1)
    transport: dict[str, Any] | None = None


class ScheduleConfig(Scheduled):
    """When Dagster starts a capture by itself."""

    cron: Cron


class PipelineConfig(Section):
    """One pipeline: a source, its tables, and the lake that they are kept in."""

    name: str
    source: Annotated[LiveSourceConfig | ArchiveSourceConfig, Field(discriminator="kind")]
    tables: TablesConfig = TablesConfig()
    targets: tuple[TargetRule, ...] = ()
    schema_changes: SchemaChanges = SchemaChangePolicy()
    start: Start = "earliest"
    bound: Bound = "end_of_log"
    accept: AcceptConfig = AcceptConfig()
    store: StoreConfig = StoreConfig()
    batch: BatchConfig = BatchConfig()
    sink: SinkConfig
    snapshot: SnapshotConfig = SnapshotConfig()
    verify: VerifyConfig | None = None
    schedule: ScheduleConfig | None = None
    maintenance: MaintenanceConfig | None = None
    dagster: DagsterConfig = DagsterConfig()
    metrics: LocalPath | None = None
    openlineage: OpenLineageConfig | None = None

    _document: PipelineDocument | None = PrivateAttr(default=None)  # what it was read from
    # Of an outline: a mistake for each variable that is unset.
    _unset: tuple[Mistake, ...] | None = PrivateAttr(default=None)
    # Of a live source, once its server was asked.
    _names: NameRule | None = PrivateAttr(default=None)

    @property
    def names(self) -> NameRule | None:
        """How the source's server compares names (K30); None while it was not asked."""
        if isinstance(self.source, ArchiveSourceConfig):
            return NameRule(self.source.lower_case_table_names)
        return self._names

    @property
    def keep_journals(self) -> KeepJournalsConfig | None:
        return self.source.keep_journals if isinstance(self.source, LiveSourceConfig) else None

    def comparing(self, names: NameRule) -> PipelineConfig:
        """This pipeline with names compared as its server has said."""
        config = self.model_copy()
        config._names = names
        return config

    @property
    def file(self) -> Path | None:
        """What it was read from; None for one that was made in code, or sent to an executor."""
        return None if self._document is None else self._document.file

    @property
    def lake_unknown(self) -> bool:
        """The lake cannot be read, because a variable in its settings is unset."""
        of_lake = ("sink.lake_path", "sink.storage")
        return any(mistake.path.startswith(of_lake) for mistake in self._unset or ())

    @property
    def left_out(self) -> tuple[Mistake, ...]:
        """The unset variables because of which Dagster has no schedule, or nothing of another
        section.
        """
        return tuple(
            mistake
            for mistake in self._unset or ()
            if mistake.path.partition(".")[0] in _SHOWN_IF_LEFT_OUT
        )

    def __getstate__(self) -> dict[Any, Any]:
        # Executors get no text of the file, which may hold secrets, and no environment (K26).
        state = super().__getstate__()
        return state | {"__pydantic_private__": state["__pydantic_private__"] | {"_document": None}}

    def resolved(self, environment: Mapping[str, str] | None = None) -> PipelineConfig:
        """This pipeline with every reference resolved, as a run needs it.

        Args:
            environment: variables that come before those of the process.

        Raises ConfigMistakes: a variable is unset, or what it stands for is wrong.
        """
        if self._document is None or self._unset is None:
            return self
        return self._document.resolve(environment)

    def others(self) -> list[PipelineConfig]:
        """Return outlines of the pipelines in the other files of its folder, without those that
        have mistakes."""
        of = self._document
        found = []
        for file in () if of is None else list_config_files(of.file.parent):
            with suppress(ConfigMistakes):
                if of is not None and file.stem != self.name:
                    found.append(read_document(file, environment=of.environment).outline())
        return found

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not SOURCE_NAME.fullmatch(value):
            raise ValueError(
                f"{value!r} is not a source name, which has at most 100 letters, digits and _, and "
                "starts with a letter"
            )
        return value

    @model_validator(mode="after")
    def _fits(self) -> PipelineConfig:
        if self.source.kind == "archive" and self.start == "latest":
            raise ValueError(
                "start: 'latest' means the end of a live log; an archive starts at "
                "'earliest' or a position"
            )
        if self.source.kind == "archive" and self.verify is not None:
            raise ValueError("verify: an archive has no rows to compare with; remove the section")
        if self.bound != "end_of_log" and self.verify is not None:
            raise ValueError(
                "verify: a comparison captures to the end of the log, and so passes the bound; "
                "remove one of both"
            )
        keep = self.keep_journals
        if keep is not None:
            # A folder of the source's own, because only its own runs know what it still needs.
            at: object = keep.path if keep.path.name == self.name else keep.path / self.name
            if isinstance(at, LakeUri):
                at = replace(at, storage=self.sink.storage)
            keep = keep.model_copy(update={"path": at})
            self.__dict__["source"] = self.source.model_copy(update={"keep_journals": keep})
        return self


def load_config(file: str | Path) -> PipelineConfig:
    """The configuration in `file`, whose stem is the source's name.

    Raises:
        ConfigMistakes: all mistakes in the file, at once.
    """
    return read_document(Path(file)).resolve()


def read_document(file: Path, *, environment: Mapping[str, str] | None = None) -> PipelineDocument:
    """What is written in `file`, without looking at any variable. Mistakes in its YAML or its
    name are kept for `resolve` and `outline`, which report all at once.

    Raises ConfigMistakes: the file cannot be read, or is no YAML mapping.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigMistakes(
            file, [Mistake(path=WHOLE_FILE, message=f"cannot be read: {error.strerror}")]
        ) from None
    except UnicodeDecodeError:
        raise ConfigMistakes(
            file, [Mistake(path=WHOLE_FILE, message="is not UTF-8 text: save it as UTF-8")]
        ) from None
    yaml_text = read_yaml(text)
    mistakes = [*yaml_text.mistakes, *_of_the_file(file)]
    document = yaml_text.document
    if not isinstance(document, dict):
        if not mistakes:
            mistakes.append(_no_section(document))
        raise ConfigMistakes(file, mistakes)
    if "name" in document:
        mistakes.append(
            Mistake(
                path="name",
                message=f"the file's name is the source's: delete this line, and rename {file.name}"
                " if the source is to have another name",
            )
        )
    name = file.stem if SOURCE_NAME.fullmatch(file.stem) else "unnamed"
    return PipelineDocument(name, file, document, environment or {}, yaml_text, tuple(mistakes))


@dataclass(frozen=True)
class PipelineDocument:
    """A pipeline as it is written: its texts refer to variables by name.

    Attributes:
        environment: variables that come before those of the process.
        text: the file's text with the places of its parts.
        mistakes: what is wrong with the text itself.
    """

    name: str
    file: Path
    content: dict[str, Any] = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    text: YamlText = field(default_factory=YamlText, repr=False)
    mistakes: tuple[Mistake, ...] = ()

    def resolve(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        accepts: Callable[..., bool] | None = None,
    ) -> PipelineConfig:
        """The configuration with all variables replaced. Raises ConfigMistakes: all mistakes, at
        once.
        """
        references = References(environment, self.environment)
        return self._checked(references.replaced(self.content), references, accepts)

    def outline(self, *, accepts: Callable[..., bool] | None = None) -> PipelineConfig:
        """The configuration as far as Dagster's definitions need it.

        Passwords and salts stay references, and so does what an unset variable stands for. A
        setting that cannot be a reference, such as a number, has its default then. A section such
        as `schedule`, which cannot be outlined with a part missing, is left out.

        Raises ConfigMistakes: all mistakes, at once.
        """
        references = References(self.environment, keep=True)
        content = references.replaced(self.content)
        for section in _LEFT_OUT & {path[0] for path in references.unset}:
            content.pop(section, None)
        if {path[:2] for path in references.unset} & {("sink", "lake_path"), ("sink", "storage")}:
            content["sink"].pop("storage", None)
        return self._checked(content, references, accepts)

    def with_mistakes(self, mistakes: list[Mistake]) -> ConfigMistakes:
        return ConfigMistakes(self.file, located(mistakes, self.text))

    def _checked(
        self,
        content: dict[str, Any],
        references: References,
        accepts: Callable[..., bool] | None,
    ) -> PipelineConfig:
        context = FileContext(self.file.resolve().parent, accepts)
        content["name"] = self.name
        config, wrong = None, list[Mistake]()
        while config is None:
            try:
                config = PipelineConfig.model_validate(content, context=context)
            except ValidationError as error:
                wrong = validation_errors(error, PipelineConfig, self.text, references.written)
                if not (references.keep and references.drop_unset(content, wrong)):
                    break
        mistakes = [*self.mistakes, *references.mistakes]
        known = {mistake.path for mistake in mistakes}
        if config is None:
            mistakes += [one for one in references.explained(wrong) if one.path not in known]
        unset = references.unset_mistakes()
        if config is None or not references.keep:
            mistakes += unset
        if mistakes or config is None:
            raise self.with_mistakes(mistakes)
        config._document, config._unset = self, tuple(unset) if references.keep else None
        return config


# Sections that cannot be outlined with a part missing, and can be left out.
_LEFT_OUT: Final = {"start", "bound", "schedule", "maintenance", "dagster"}
# Those of them that Dagster acts by: nothing would happen, and no run would say why.
_SHOWN_IF_LEFT_OUT: Final = {"schedule", "maintenance", "dagster"}


def _of_the_file(file: Path) -> list[Mistake]:
    """What is wrong with the name of a file."""
    mistakes = []
    if not SOURCE_NAME.fullmatch(file.stem):
        message = (
            f"{file.stem!r} cannot name a source: rename the file; a source's name has at most "
            "100 letters, digits and _, and starts with a letter"
        )
        mistakes.append(Mistake(path=WHOLE_FILE, message=message))
    twins = [file.with_suffix(suffix) for suffix in CONFIG_SUFFIXES]
    if all(twin.is_file() for twin in twins):
        names = " and ".join(twin.name for twin in twins)
        message = f"{names} both configure the source {file.stem}: delete or rename one of them"
        mistakes.append(Mistake(path=WHOLE_FILE, message=message))
    return mistakes


def _no_section(document: object) -> Mistake:
    got = "the file is empty" if document is None else "the file has no settings in its first level"
    return Mistake(
        path=WHOLE_FILE,
        message=f"{got}: expected a mapping with source:, sink: and others, each in a line of its "
        "own",
    )


def list_config_files(jobs_directory: Path) -> list[Path]:
    """One for each source, by name; ConfigError: there is no such folder."""
    if not jobs_directory.is_dir():
        raise ConfigError(
            f"the jobs directory {jobs_directory} does not exist",
            expected="a directory with one YAML file per source",
            next_step="start in the project's folder, name the directory with --jobs or "
            "CDC_PIPELINE_JOBS, or make a project: cdc-pipeline init my_project",
        )
    files: dict[str, Path] = {}
    for suffix in CONFIG_SUFFIXES:
        for file in sorted(jobs_directory.glob(f"*{suffix}")):
            if file.name != COMPONENT_FILE:
                files.setdefault(file.stem, file)
    return sorted(files.values())
