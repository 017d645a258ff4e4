"""``cdc-pipeline init``: a new project that runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Final

import click

from cdc_pipeline.cli.common.output import emit_json, results
from cdc_pipeline.cli.common.settings import Settings, with_json
from cdc_pipeline.cli.common.source_access import has_dagster
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.demo import SOURCE as DEMO_SOURCE
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.text.wording import count_of

# The files are made of those in this folder, which are written for a source named `sales`.
_PARTS: Final = Path(__file__).with_name("project")
_NAME_IN_PARTS: Final = "sales"
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
) -> None:
    """Make a project in DIRECTORY: a pipeline, Dagster's files, and a README with the first steps.

    No existing file is changed: if one of them is there, nothing is written.

    Exit codes: 0 written; 2 a file exists already, or the name cannot name a source.
    """
    if with_dagster is None:
        with_dagster = has_dagster()
    if add_dagster:
        files = _write(directory, _dagster_files())
        steps = [f"cd {shlex.quote(str(directory))}", *_dagster_steps()]
    else:
        files = _make_project(directory, source=source, demo=demo, with_dagster=with_dagster)
        steps = _next_steps(directory, source=source, demo=demo, with_dagster=with_dagster)
    if settings.as_json:
        emit_json({"directory": str(directory), "files": files, "next": steps})
        return
    out = results()
    out.print(f"{directory}: {count_of(len(files), 'new file')}", soft_wrap=True)
    for name in files:
        out.print(f"  {name}", soft_wrap=True)
    out.print("\nnext:")
    for step in steps:
        out.print(f"  {step}", soft_wrap=True)


def _make_project(directory: Path, *, source: str, demo: bool, with_dagster: bool) -> list[str]:
    """Write a new project and return its files, relative to `directory`, which may exist.

    `source`: of the demo (a recorded shop instead of a server) it is always ``shop``.

    Raises ConfigError if one of the files exists, or `source` cannot name a source.
    """
    from cdc_pipeline.config.pipeline_config import SOURCE_NAME
    from cdc_pipeline.config.settings import json_schema

    if not SOURCE_NAME.fullmatch(source):
        raise ConfigError(
            "this name cannot name a source",
            setting="--source",
            expected="at most 100 letters, digits and _, beginning with a letter",
            got=source,
            next_step=f"cdc-pipeline init {directory} --source {_NAME_IN_PARTS}",
        )
    kind = "demo" if demo else "live"
    scheduler = "dagster" if with_dagster else "lake"
    environment = ["env.example", *([] if demo else ["env.live"])]
    environment += [] if with_dagster else ["env.lake"]
    files = {
        f"jobs/{DEMO_SOURCE if demo else source}.yaml": _part(f"{kind}.yaml", source=source),
        "jobs/.schema.json": json.dumps(json_schema(), indent=2, ensure_ascii=False).encode(),
        "README.md": _part(f"README.{kind}.md", f"README.{scheduler}.md", source=source),
        ".env.example": _part(*environment, source=source),
        ".gitignore": _part("gitignore", source=source),
    }
    if with_dagster:
        files |= _dagster_files()
    if demo:
        files |= _journals()
    return _write(directory, files)


def complete_demo_project(directory: Path, *, with_dagster: bool) -> list[str]:
    """The demo's project, or Dagster's files for one without them; returns the new files."""
    if not (directory / "jobs" / f"{DEMO_SOURCE}.yaml").is_file():
        return _make_project(directory, source=DEMO_SOURCE, demo=True, with_dagster=with_dagster)
    missing = {
        name: content
        for name, content in _dagster_files().items()
        if with_dagster and not (directory / name).exists()
    }
    return _write(directory, missing)


def _part(*names: str, source: str) -> bytes:
    text = "".join((_PARTS / name).read_text(encoding="utf-8") for name in names)
    text = re.sub(rf"\b{_NAME_IN_PARTS}\b", source, text)
    return text.replace(f"{_NAME_IN_PARTS.upper()}_", f"{source.upper()}_").encode()


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
        with file.open("xb") as stream:
            stream.write(content)
    return list(files)


def _next_steps(directory: Path, *, source: str, demo: bool, with_dagster: bool) -> list[str]:
    steps = [f"cd {shlex.quote(str(directory))}"]
    if demo:
        cursor = "" if with_dagster else " --cursor lake"
        steps.append(f"cdc-pipeline{cursor} demo")
    else:
        steps += [
            f"edit jobs/{source}.yaml: address, user, tables",
            "cp .env.example .env, and write the password there",
            "set -a; . ./.env; set +a",
            f"cdc-pipeline doctor {source}",
            f"cdc-pipeline snapshot {source}",
            f"cdc-pipeline run {source}",
        ]
    if with_dagster:
        return steps + _dagster_steps()
    return [*steps, "to add Dagster: README.md, at its end"]


def _dagster_steps() -> list[str]:
    return ['export DAGSTER_HOME="$PWD/dagster_home"', "dagster dev -w workspace.yaml"]
