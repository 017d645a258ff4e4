"""Mistakes in files and on the command line, and what a newcomer is told
(tests/golden/mistakes/README.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.project import Project
from tests.support.told import FOLDER, Told

ARCHIVE: Final = "source: {kind: archive, directory: journals}\n"
SINK: Final = "sink: {lake_path: ../lake}\n"
GOOD: Final = ARCHIVE + SINK

# Name of the golden file -> the text of jobs/shop.yaml.
FILES: Final = {
    "config-every-mistake": """\
source:
  kind: live
  host: db.example
  port: 99999
  user: 12
  password: 3306
  conect_timeout_s: 5m
  read_timeout_s: soon
tables:
  include: shop.*
  exclude: [orders]
target: []
start: {journal: binlog.000001, offset: 2}
bound: {bytes: 12 parsecs}
store: {ring_events: 1000, memory_unit_bytes: 16XB}
batch: {decode: drivr}
sink:
  mode: miror
  merge_threads: 100
  cut_retention: 7
  storage: {region: eu-west-1}
maintenance:
schedule: {cron: now and then, timezone: Mars/Olympus}
colour: blue
""",
    "config-wrong-level": "source:\nkind: live\nhost: db.example\n" + SINK,
    "config-wrong-kind": "source: {kind: mysql, host: db.example}\n" + SINK,
    "config-wrong-start": ARCHIVE + "start: yesterday\nbound: {rows: 5}\n" + SINK,
    "config-latest-of-archive": GOOD + "start: latest\n",
    "config-two-targets-rules": GOOD
    + "targets:\n- {tables: [shop.a], mode: changelog, key: [id]}\n"
    + "- {tables: [shop.b], masks: {email: hash}, types: {n: integr}, filter: 'rand() > 0'}\n",
    "config-s3-forms": ARCHIVE
    + "sink: {lake_path: 's3://bucket/lake', spark: {driver_memory: 2048}, "
    "storage: {endpoint: store.example:9000}}\n",
    "config-schedule": GOOD + "schedule: {cron: '61 * * * *', timezone: Europe/Berlim}\n",
    "config-unset-variable": "source: {kind: live, host: db.example, user: cdc, "
    "password: '${SHOP_PASSWORD}'}\n" + SINK,
    "yaml-tab": "source:\n\tkind: live\n" + SINK,
    "yaml-indentation": "source:\n  kind: live\n   host: db.example\n" + SINK,
    "yaml-dedented": "source:\n  kind: live\n host: db.example\n" + SINK,
    "yaml-unquoted-pattern": ARCHIVE + "tables:\n  include: [*.*]\n" + SINK,
    "yaml-unquoted-cron": GOOD + "schedule:\n  cron: */15 * * * *\n",
    "yaml-unquoted-daily": GOOD + "schedule:\n  cron: @daily\n",
    "yaml-second-colon": ARCHIVE + "sink:\n  lake_path: the lake: here\n",
    "yaml-no-colon": ARCHIVE + "sink\n  lake_path: ../lake\n",
    "yaml-open-bracket": "source: {kind: archive, directory: journals\n" + SINK,
    "yaml-open-quote": "source: {kind: archive, directory: 'journals}\n" + SINK,
    "yaml-twice": GOOD + "sink: {lake_path: elsewhere, lake_path: nowhere}\n",
    "yaml-empty": "",
    "yaml-no-section": "just a text\n",
}

README: Final = (FOLDER / "README.md").read_text(encoding="utf-8")
_OF_LIBRARIES: Final = (
    *("Input should", "pydantic", "yaml.scanner", "Traceback", "croniter"),
    *("GenericError", "<Code>", "java.", "org.apache", "[Errno ", "LakeStateError"),
)


@pytest.fixture
def jobs(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    folder = tmp_path / "jobs"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", FILES)
def test_a_mistake_in_a_file(name: str, told: Told, jobs: Path) -> None:
    (jobs / "shop.yaml").write_text(FILES[name], encoding="utf-8")
    told.run("validate", exit_code=2)
    told.check(name)


def test_no_library_speaks_in_what_is_told() -> None:
    for file in FOLDER.glob("*.txt"):
        text = file.read_text(encoding="utf-8")
        for word in _OF_LIBRARIES:
            assert word not in text, f"{file.name}: {word}"


def test_every_text_was_judged() -> None:
    judged = re.findall(r"^\| .+ \| \[([\w-]+)\]\(\1\.txt\) \| .+ \|$", README, re.MULTILINE)
    assert sorted(judged) == sorted(file.stem for file in FOLDER.glob("*.txt"))


def test_a_mistake_stops_every_command_in_the_same_words(told: Told, jobs: Path) -> None:
    (jobs / "shop.yaml").write_text(GOOD + "colour: blue\n")
    for command in ("validate", "plan", "run", "status"):
        told.run(command, "shop", exit_code=2)
    told.then("delete the line")
    (jobs / "shop.yaml").write_text(GOOD)
    told.run("validate", exit_code=0)
    told.check("config-by-every-command")


def test_a_file_with_the_short_ending_is_a_source(told: Told, jobs: Path) -> None:
    (jobs / "shop.yml").write_text(GOOD)
    told.run("validate", exit_code=0)
    told.run("validate", "shop", exit_code=0)
    told.check("file-yml")


def test_a_mistake_with_two_files_of_one_source(told: Told, jobs: Path) -> None:
    (jobs / "shop.yml").write_text(GOOD)
    (jobs / "shop.yaml").write_text(GOOD)
    told.run("validate", exit_code=2)
    told.then("delete shop.yml")
    (jobs / "shop.yml").unlink()
    told.run("validate", exit_code=0)
    told.check("file-twice")


def test_a_mistake_in_the_name_of_a_file(told: Told, jobs: Path) -> None:
    (jobs / "my-shop.yaml").write_text("name: shop\n" + GOOD)
    told.run("validate", exit_code=2)
    told.then("rename it to my_shop.yaml, without the line")
    (jobs / "my-shop.yaml").unlink()
    (jobs / "my_shop.yaml").write_text(GOOD)
    told.run("validate", exit_code=0)
    told.check("file-name")


def test_a_mistake_in_the_folder(told: Told, tmp_path: Path) -> None:
    told.run("validate", exit_code=2)
    told.then("mkdir jobs")
    (tmp_path / "jobs").mkdir()
    told.run("validate", exit_code=2)
    told.run("status", exit_code=2)
    told.run("run", "shop", exit_code=2)
    told.then("write jobs/shop.yaml")
    (tmp_path / "jobs" / "shop.yaml").write_text(GOOD)
    told.run("validate", exit_code=0)
    told.check("folder-empty")


def test_a_mistake_in_a_name(told: Told, jobs: Path) -> None:
    (jobs / "shop.yaml").write_text(GOOD)
    told.run("run", "shpo", exit_code=2)
    told.run("run", "jobs/shop.yaml", exit_code=2)
    told.run("runn", "shop", exit_code=2)
    told.run("capture", exit_code=2)
    told.run("run", exit_code=2)
    told.run("run", "shop", "--until-bytes", "12 parsecs", exit_code=2)
    told.run("run", "shop", "--until-seconds", "soon", exit_code=2)
    told.run("run", "shop", "--until-transaction", "5", exit_code=2)
    told.run("run", "shop", "--until", "soon", exit_code=2)
    told.run("run", "shop", "--until", "2026-11-29", exit_code=2)
    told.check("command-line")


def test_a_mistake_of_two_pipelines_on_one_table(told: Told, jobs: Path) -> None:
    text = GOOD + "tables: {include: [shop.orders]}\n"
    (jobs / "shop.yaml").write_text(text)
    (jobs / "again.yaml").write_text(text)
    told.run("validate", exit_code=2)
    told.then("another lake")
    (jobs / "again.yaml").write_text(text.replace("../lake", "../lake2"))
    told.run("validate", exit_code=0)
    told.check("two-pipelines-one-table")


def test_a_mistake_about_dagster_home(told: Told, jobs: Path, tmp_path: Path) -> None:
    (jobs / "shop.yaml").write_text(GOOD)
    told.run("run", "shop", exit_code=2)
    told.then("mkdir dagster_home")
    (tmp_path / "dagster_home").mkdir()
    told.run("status", "shop", exit_code=0)
    told.check("no-dagster-home")


def test_a_mistake_in_a_tables_name(told: Told, project: Project) -> None:
    (project.jobs / "shop.yaml").write_text(GOOD + "tables: {include: [shop.orders]}\n")
    told.run("run", "shop", "--table", "shop.order", exit_code=2)
    told.run("run", "shop", "--table", "orders", exit_code=2)
    told.check("unknown-table")
