"""``cdc-pipeline init``: a new project that runs."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
import yaml

from cdc_pipeline.cli.common.activity import replaced
from cdc_pipeline.cli.common.output import emit_json, is_interactive, results
from cdc_pipeline.cli.common.settings import Settings, tables_option, with_json
from cdc_pipeline.cli.common.source_access import has_dagster
from cdc_pipeline.config.pipeline_config import SOURCE_NAME, ConfigMistakes, read_document
from cdc_pipeline.config.sink_config import READER_PRESETS
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.demo import SOURCE as DEMO_SOURCE
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.text.wording import count_of

# The files are made of those in this folder, which are written for a source named `sales`.
_PARTS: Final = Path(__file__).with_name("project")
_NAME_IN_PARTS: Final = "sales"
_FLAVORS: Final = {"mysql": "MySQL", "mariadb": "MariaDB"}
_DAGSTER_FILES: Final = {
    "jobs/definitions.py": "definitions.py",
    "workspace.yaml": "workspace.yaml",
    "dagster_home/dagster.yaml": "dagster.yaml",
}


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--source",
    metavar="NAME",
    default=_NAME_IN_PARTS,
    show_default=True,
    help="Name of the first source, of its file and of the variable with its password.",
)
@click.option("--host", help="Address of the server.  [default: db.example]")
@click.option("--port", type=click.IntRange(1, 65535), help="Its port.  [default: 3306]")
@click.option("--user", help="The account, which grants.sql creates.  [default: cdc]")
@click.option(
    "--flavor", type=click.Choice(["mysql", "mariadb"]), help="For grants.sql.  [default: mysql]"
)
@tables_option("A pattern of schema.table; can be given more than once.  [default: NAME.*]")
@click.option("--lake", metavar="PLACE", help="A folder, or s3a://bucket/folder.  [default: lake]")
@click.option(
    "--reader",
    "readers",
    multiple=True,
    type=click.Choice(sorted(READER_PRESETS)),
    help="What reads the tables; can be given more than once. By default they use all of Delta, "
    "which Spark 4 reads.",
)
@click.option("--yes", is_flag=True, help="Ask nothing: defaults for what is not given.")
@click.option("--demo", is_flag=True, help="The recorded shop, which needs no server.")
@click.option(
    "--dagster/--no-dagster",
    "with_dagster",
    default=None,
    help="With Dagster's files, or for other schedulers, with the cursor in the lake; by default "
    "with them if Dagster is installed.",
)
@click.option(
    "--add-dagster", is_flag=True, help="Only add Dagster's files to a project without them."
)
@with_json
def command(
    settings: Settings,
    *,
    directory: Path,
    source: str,
    demo: bool,
    with_dagster: bool | None,
    add_dagster: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Make a project in DIRECTORY: a pipeline, the account's grants, Dagster's files, and a README
    with the first steps. On a terminal it asks for what is not given.

    No existing file is changed: if one of them is there, nothing is written.

    Exit codes: 0 written; 2 a file exists already, or the name cannot name a source.
    """
    if with_dagster is None:
        with_dagster = has_dagster()
    if add_dagster:
        files = _write(directory, _dagster_files())
        steps = [f"cd {shlex.quote(str(directory))}", *_dagster_steps()]
    else:
        asks = is_interactive() and not (yes or demo or settings.as_json)
        answers = _Answers.of(source, given, asks=asks)
        files = _make_project(
            directory, answers, source=source, demo=demo, with_dagster=with_dagster
        )
        steps = _next_steps(directory, answers, source=source, demo=demo, with_dagster=with_dagster)
    if settings.as_json:
        emit_json({"directory": str(directory), "files": files, "next": steps})
        return
    out = results()
    out.print(f"{directory}: {count_of(len(files), 'new file')}")
    for name in files:
        out.print(f"  {name}")
    out.print("\nnext:")
    for step in steps:
        out.print(f"  {step}")


@dataclass(frozen=True)
class _Answers:
    """`is_given`: a person has named a server."""

    host: str
    port: int
    user: str
    flavor: str
    tables: tuple[str, ...]
    lake: str
    readers: tuple[str, ...]
    is_given: bool

    @classmethod
    def of(cls, source: str, given: Mapping[str, Any], *, asks: bool) -> _Answers:
        """What is not given is asked, or has its default."""

        def answer(name: str, question: str, default: Any, kind: Any = str) -> Any:
            value = given[name]
            if value not in (None, ()) or not asks:
                return value or default
            with replaced():
                return click.prompt(question, default=default, type=kind, err=True)

        def answers(name: str, question: str, default: str) -> tuple[str, ...]:
            value = answer(name, question, default)
            return value if isinstance(value, tuple) else tuple(re.split(r"[\s,]+", value.strip()))

        flavors, readers = click.Choice(["mysql", "mariadb"]), ", ".join(sorted(READER_PRESETS))
        return cls(
            host=answer("host", "Server", "db.example"),
            port=answer("port", "Port", 3306, click.IntRange(1, 65535)),
            user=answer("user", "Account", "cdc"),
            flavor=answer("flavor", "Flavor", "mysql", flavors),
            tables=answers("tables", "Tables, as patterns of schema.table", f"{source}.*"),
            lake=answer("lake", "Lake, a folder or s3a://bucket/folder", "lake"),
            readers=answers("readers", f"Readers: all (Spark 4), or some of {readers}", "all"),
            is_given=asks or any(given.values()),
        )

    @property
    def folder(self) -> str:
        """The lake's in the project; "" if it is elsewhere."""
        is_place = "://" in self.lake or self.lake.startswith(("/", "~", "$", ".."))
        return "" if is_place else posixpath.normpath(self.lake)

    def mysql(self) -> str:
        return f"mysql -h {shlex.quote(self.host)} -P {self.port} -u root -p"

    def parts(self) -> dict[str, str]:
        """What stands for the ``<names>`` in the files of a project."""
        readers = list(self.readers)
        return {
            "mysql": self.mysql(),
            "lake_shown": f"{self.folder}/" if self.folder else self.lake,
            "lake_ignored": f"/{self.folder}/\n" if self.folder else "",
            "host": _scalar(self.host),
            "port": str(self.port),
            "user": _scalar(self.user),
            "tables": json.dumps(list(self.tables), ensure_ascii=False),
            "lake": _scalar(f"../{self.folder}" if self.folder else self.lake),
            "readers": "# reader_features: [duckdb]"
            if readers == ["all"]
            else f"reader_features: {json.dumps(readers)}",
        }

    def grants(self) -> str:
        from cdc_pipeline.operations.doctor.grants import account_statements
        from cdc_pipeline.text.table_names import NameRule, TablePattern

        patterns = [TablePattern.parse(one, NameRule.AS_GIVEN) for one in self.tables]
        lines = account_statements(self.flavor, self.user, patterns)
        other = "mysql" if self.flavor == "mariadb" else "mariadb"
        head = [
            f"-- Once, by an administrator of the {_FLAVORS[self.flavor]} server, with a password"
            " of your own:",
            f"--   {self.mysql()} < grants.sql",
            f"-- `cdc-pipeline init --flavor {other}` writes those for {_FLAVORS[other]}.",
        ]
        if self.flavor == "mariadb":
            lines.append(
                "-- To outlast a restart, in its configuration file: binlog_row_metadata = FULL"
            )
        return "\n".join([*head, *lines, ""])


def _scalar(text: str) -> str:
    """As YAML reads it again."""
    is_plain = re.fullmatch(r"(\.\./)?[A-Za-z/][\w./-]*", text) and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _make_project(
    directory: Path, answers: _Answers | None, *, source: str, demo: bool, with_dagster: bool
) -> list[str]:
    """Write a new project and return its files, relative to `directory`, which may exist.

    `source`: of the demo (a recorded shop instead of a server) it is always ``shop``.

    Raises ConfigError if one of the files exists, `source` cannot name a source, or the answers
    make no pipeline.
    """
    from cdc_pipeline.config.settings import json_schema

    if not SOURCE_NAME.fullmatch(source):
        raise ConfigError(
            "this name cannot name a source",
            setting="--source",
            expected="at most 100 letters, digits and _, beginning with a letter",
            got=source,
            next_step=f"cdc-pipeline init {directory} --source {_NAME_IN_PARTS}",
        )
    kind = "demo" if demo or answers is None else "live"
    source = DEMO_SOURCE if kind == "demo" else source
    live = None if kind == "demo" else answers
    parts = {"lake_ignored": "/lake/\n"} if live is None else live.parts()
    pipeline = _part(f"{kind}.yaml", source=source, parts=parts)
    if live is not None:
        _check(pipeline, source)
    scheduler = "dagster" if with_dagster else "lake"
    environment = ["env.example", *([] if kind == "demo" else ["env.live"])]
    environment += [] if with_dagster else ["env.lake"]
    files = {
        f"jobs/{source}.yaml": pipeline,
        "jobs/.schema.json": json.dumps(json_schema(), indent=2, ensure_ascii=False).encode(),
        "README.md": _part(
            f"README.{kind}.md", f"README.{scheduler}.md", source=source, parts=parts
        ),
        ".env.example": _part(*environment, source=source),
        ".gitignore": _part("gitignore", source=source, parts=parts),
    }
    if live is not None:
        files["grants.sql"] = live.grants().encode()
    if with_dagster:
        files |= _dagster_files()
    if kind == "demo":
        files |= _journals()
    return _write(directory, files)


def complete_demo_project(directory: Path, *, with_dagster: bool) -> list[str]:
    """The demo's project, or Dagster's files for one without them; returns the new files."""
    if not (directory / "jobs" / f"{DEMO_SOURCE}.yaml").is_file():
        return _make_project(
            directory, None, source=DEMO_SOURCE, demo=True, with_dagster=with_dagster
        )
    missing = {
        name: content
        for name, content in _dagster_files().items()
        if with_dagster and not (directory / name).exists()
    }
    return _write(directory, missing)


def _check(pipeline: bytes, source: str) -> None:
    """ConfigError: the answers are wrong, in the words of `validate`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{source}.yaml"
        file.write_bytes(pipeline)
        try:
            read_document(file).outline()
        except ConfigMistakes as error:
            raise ConfigError(
                "these answers make no pipeline, so nothing was written",
                got="; ".join(map(str, error.mistakes)),
                next_step="correct them and give the same command again",
            ) from None


def _part(*names: str, source: str, parts: Mapping[str, str] | None = None) -> bytes:
    text = "".join((_PARTS / name).read_text(encoding="utf-8") for name in names)
    text = re.sub(rf"\b{_NAME_IN_PARTS}\b", source, text)
    text = text.replace(f"{_NAME_IN_PARTS.upper()}_", f"{source.upper()}_")
    known = parts or {}
    # In one pass, so that an answer is not read again.
    return re.sub(r"<([a-z_]+)>", lambda match: known.get(match[1], match[0]), text).encode()


def _dagster_files() -> dict[str, bytes]:
    return {name: (_PARTS / part).read_bytes() for name, part in _DAGSTER_FILES.items()}


def _journals() -> dict[str, bytes]:
    files = sorted((SHOP_DIRECTORY / "journals").iterdir())
    return {f"journals/{file.name}": file.read_bytes() for file in files}


def _write(directory: Path, files: dict[str, bytes]) -> list[str]:
    existing = [name for name in files if (directory / name).exists()]
    if existing:
        raise ConfigError(
            "a project would overwrite files, so nothing was written",
            expected=f"none of its files in {directory}",
            got=", ".join(existing),
            next_step="name another directory, or move these files away",
        )
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600 if name == "grants.sql" else 0o666, exist_ok=False)
        file.write_bytes(content)
    return list(files)


def _next_steps(
    directory: Path, answers: _Answers, *, source: str, demo: bool, with_dagster: bool
) -> list[str]:
    steps = [f"cd {shlex.quote(str(directory))}"]
    if demo:
        cursor = "" if with_dagster else " --cursor lake"
        steps.append(f"cdc-pipeline{cursor} demo")
    else:
        if not answers.is_given:
            steps.append(f"edit jobs/{source}.yaml: address, user, tables")
        steps += [
            f"{answers.mysql()} < grants.sql   # by an administrator of the server",
            "cp .env.example .env   # and write the password there",
            "set -a; . ./.env; set +a",
            f"cdc-pipeline doctor {source}",
            f"cdc-pipeline discover {source} --save",
            f"cdc-pipeline snapshot {source}",
            f"cdc-pipeline run {source}",
        ]
    if with_dagster:
        return steps + _dagster_steps()
    return [*steps, "to add Dagster: README.md, at its end"]


def _dagster_steps() -> list[str]:
    return ['export DAGSTER_HOME="$PWD/dagster_home"', "dagster dev -w workspace.yaml"]
