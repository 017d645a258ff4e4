"""``cdc-pipeline config schema|show``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import load_config
from tests.cli.test_mistakes import FILES
from tests.support.project import ROOT
from tests.support.told import COMMANDS, Told

SALT = "0123456789abcdef0123456789abcdef"
YAML = """\
source: {kind: live, host: "${SHOP_HOST}", user: cdc, password: "${SHOP_PASSWORD}", read_timeout_s: 5m}
tables: {include: ["shop.*"]}
targets:
- tables: [shop.people]
  masks: {email: {hash: {salt: "${SHOP_SALT}"}}, password: drop, name: {truncate: 1}}
- tables: [shop.orders]
  mode: history
start: {time: 2026-01-31T08:00:00+00:00}
sink:
  lake_path: ../lake
  cut_retention: 36 h
  spark: {settings: {spark.hadoop.fs.s3a.secret.key: "${SHOP_SALT}", spark.ui.enabled: "false"}}
schedule: {cron: "*/15 * * * *"}
dagster: {automation: eager}
"""  # noqa: E501


@pytest.fixture
def jobs(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in (("HOST", "db.example"), ("PASSWORD", "topsecret"), ("SALT", SALT)):
        monkeypatch.setenv(f"SHOP_{name}", value)
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "shop.yaml").write_text(YAML)
    return folder


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


# -- show ------------------------------------------------------------------------------------------


def test_all_settings_are_shown_with_where_they_are_from(told: Told, jobs: Path) -> None:
    told.run("config", "show", "shop", exit_code=0)
    told.check("config-show", folder=COMMANDS)


def test_k26_no_secret_is_shown(jobs: Path) -> None:
    for options in ((), ("--json",)):
        done = _run("config", "show", "shop", *options)
        assert done.exit_code == 0
        for secret in ("topsecret", SALT):
            assert secret not in done.output


def test_what_is_shown_is_a_file_of_the_same_meaning(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _run("config", "show", "shop").stdout
    again = jobs.parent / "again" / "shop.yaml"
    again.parent.mkdir()
    again.write_text(text.replace("'**********'", "'${SHOP_SALT}'"))
    monkeypatch.setenv("SHOP_PASSWORD", SALT)
    assert load_config(again).model_dump() == load_config(jobs / "shop.yaml").model_dump()
    document = json.loads(_run("config", "show", "shop", "--json").stdout)
    assert document["settings"] == yaml.safe_load(text)
    assert document["origins"]["source.host"] == "environment"
    assert document["origins"]["targets.1.mode"] == "file"
    assert document["origins"]["targets.0.mode"] == "default"


def test_mistakes_are_named_as_everywhere(jobs: Path) -> None:
    (jobs / "shop.yaml").write_text(YAML + "colour: blue\n")
    done = _run("config", "show", "shop")
    assert done.exit_code == 2
    assert "colour: no such setting" in done.stderr


# -- schema ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(_run("config", "schema").stdout)
    jsonschema.Draft7Validator.check_schema(made)
    return made


def _mistakes(schema: dict[str, Any], text: str) -> list[str]:
    class Loader(yaml.SafeLoader):
        """Editors read YAML 1.2, where a time is a text."""

    Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _loader, node: node.value)
    document = yaml.load(text, Loader)
    return [one.message for one in jsonschema.Draft7Validator(schema).iter_errors(document)]


def test_the_schema_accepts_what_the_program_accepts(schema: dict[str, Any]) -> None:
    assert _mistakes(schema, YAML) == []
    assert _mistakes(schema, YAML.replace("user: cdc", "user: cdc, port: '${PORT}'")) == []
    for file in sorted(ROOT.glob("jobs/*.y*ml")):
        assert _mistakes(schema, file.read_text()) == [], file


@pytest.mark.parametrize("name", ["every-mistake", "wrong-level", "wrong-kind", "wrong-start"])
def test_the_schema_refuses_what_a_newcomer_gets_wrong(name: str, schema: dict[str, Any]) -> None:
    assert _mistakes(schema, FILES[f"config-{name}"])


def test_every_setting_is_described(schema: dict[str, Any]) -> None:
    sections = {"": schema, **schema["definitions"]}
    silent = [
        f"{title}.{name}"
        for title, section in sections.items()
        for name, value in section.get("properties", {}).items()
        if not value.get("description")
    ]
    assert silent == []
    assert "HashMask" in schema["definitions"]
    text = json.dumps(schema)
    for word in (".md)", "P7D", "$defs"):
        assert word not in text
