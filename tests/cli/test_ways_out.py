"""The commands that errors name are tried from the very state that raises them (K22).

Whole commands in this process, over a recorded journal and tables in memory.
`tests/house/test_next_steps.py` lists which test tries which next step.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.errors import ConfigError, LakeStateError, TableNotInCutError
from cdc_pipeline.lake.long_operations import OPERATIONS_FOLDER
from cdc_pipeline.operations.cursor.cursor_change import apply_rebuild, plan_rebuild
from cdc_pipeline.orchestration.runs.execute import load_source
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.admin_batch import admin_batch
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.read.cuts import source_of
from tests.support.memory_shop import MemoryShop, archive_at
from tests.support.project import Project

_COMMAND = re.compile(r"`cdc-pipeline ([^`]+)`")


def commands_of(text: str) -> list[list[str]]:
    """The commands in a text that a person reads, each as the words behind ``cdc-pipeline``."""
    return [shlex.split(found) for found in _COMMAND.findall(" ".join(text.split()))]


def check_usage(words: list[str]) -> None:
    command: click.Command = cli
    context, left = click.Context(cli), ["-" if word == "JOURNAL" else word for word in words]
    while isinstance(command, click.Group):
        name, found, left = command.resolve_command(context, left)
        assert found is not None, words
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.parse_args(context, left)


TABLES = ["shop.pair", "shop.plain", "shop.isam"]


def run(*arguments: object, exit_code: int | None = 0) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert exit_code is None or result.exit_code == exit_code, result.output
    return result


def named(result: Result, *beginning: str) -> list[str]:
    """The command of the error in a result that begins so."""
    assert result.exit_code, result.output
    found = [
        words for words in commands_of(result.stderr) if words[: len(beginning)] == list(beginning)
    ]
    assert found, result.stderr
    check_usage(found[0])
    return found[0]


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> MemoryShop:
    """A project with one source, of which nothing was captured yet."""
    monkeypatch.chdir(project.root)
    document = {
        "source": {"kind": "archive", "directory": str(archive_at(project.root / "journals"))},
        "tables": {"include": TABLES},
        "start": "earliest",
        "sink": {"lake_path": str(project.lake)},
    }
    file = project.jobs / "shop.yaml"
    file.write_text(yaml.safe_dump(document))
    made = MemoryShop(load_config(file))
    made.take_place(monkeypatch)
    return made


def test_a_migration_is_rehearsed_from_a_file(shop: MemoryShop) -> None:
    run("run", "shop", "--json")
    script = Path("next.sql")
    script.write_text("USE shop;\nALTER TABLE pair ADD COLUMN e INT;\n")
    shown = run("rehearse", "shop", script)
    assert "ALTER TABLE pair ADD COLUMN e INT" in shown.stdout
    assert "shop.pair: adds e int" in shown.stdout
    script.write_text("ALTER TABLE pair DROP PRIMARY KEY;\n")
    refused = run("rehearse", "shop", script, "--database", "shop", "--json", exit_code=1)
    (made,) = json.loads(refused.stdout)["statements"]
    assert (made["outcome"], made["suspends"]) == ("suspends", ["shop.pair"])
    assert "change_key" in made["next_step"]


def test_the_story_of_a_row_is_told_and_taken_back_in_sql(shop: MemoryShop) -> None:
    run("run", "shop")
    row = ("story", "shop", "shop.pair", "--key", "a=20", "--key", "b=two")
    changes = json.loads(run(*row, "--json").stdout)["changes"]
    change = next(each for each in changes if each["op"] == "update")
    assert (change["note"], change["changed"]) == ("its key changes", ["a", "c"])
    assert "its key changes" in run(*row).stdout
    script = run(*row, "--undo", change["transaction"]).stdout
    whole = run(*row[:3], "--whole-table", "--undo", change["transaction"]).stdout
    words = [line.split()[0] for line in script.splitlines() if "`pair`" in line]
    assert words == ["UPDATE", "DELETE"]  # the transaction inserted it too
    assert "DELETE FROM `shop`.`pair` WHERE `a` = 1" in whole
    run(*row[:3], "--key", "a=20", exit_code=2)
    run(*row[:3], "--key", "a=x", "--key", "b=two", exit_code=2)
    unknown = run(*row[:3], "--key", "a=99", "--key", "b=two", exit_code=1)
    assert "no change of a row of shop.pair with this key is known" in unknown.stderr
    run(*row[:3], exit_code=2)


def test_k22_a_table_that_others_changed_is_rebuilt_from_the_archive(shop: MemoryShop) -> None:
    """LakeStateError: also where `snapshot` is tried first, and over a load whose own file is
    damaged, which keeps no capture from going on."""
    run("run", "shop")
    before = {name: shop.changes(name) for name in TABLES}
    shop.lake.write(shop.paths.table("shop.pair"), rows=[])
    suspended = run("run", "shop", exit_code=1)
    check_usage(named(suspended, "verify"))
    rebuild = named(suspended, "backfill")
    asked = run(*named(suspended, "snapshot"), exit_code=None)
    assert named(asked, "backfill", "shop")
    damaged = shop.paths.state / OPERATIONS_FOLDER / "20260101T000000-00000000.json"
    damaged.parent.mkdir()
    damaged.write_text('{"operation_id"')
    assert "20260101T000000-00000000" in run("status", "shop", exit_code=None).output
    refused = run(*rebuild, exit_code=1)
    restart = [word.replace("SCHEMA.TABLE", "shop.pair") for word in named(refused, "backfill")]
    run(*restart)
    run("run", "shop")
    assert {name: shop.changes(name) for name in TABLES} == before
    assert not damaged.exists()


def test_k22_a_recorded_batch_is_finished_by_the_run_that_the_refusals_name(
    shop: MemoryShop,
) -> None:
    """Setting the cursor, and settling rows in quarantine, wait for it."""
    shop.run(transactions=6)
    shop.stop_at("after_record")
    refused = run("cursor", "set", "shop", "--from", "earliest", "--yes", exit_code=1)
    assert "is recorded but unfinished" in refused.stderr
    run(*named(refused, "run"))
    run("cursor", "set", "shop", "--from", "latest", "--yes")
    run("run", "shop")


def test_k22_a_cursor_ahead_of_the_lake_is_rebuilt(shop: MemoryShop) -> None:
    """The lake was restored from an older backup."""
    shop.run(transactions=6)
    kept = shop.paths.lake.with_name("backup")
    shutil.copytree(shop.paths.lake, kept)
    tables = copy.deepcopy(shop.lake.tables)
    run("run", "shop")
    whole = {name: shop.changes(name) for name in TABLES}
    shutil.rmtree(shop.paths.lake)
    kept.rename(shop.paths.lake)
    shop.lake.tables = tables
    ahead = run("run", "shop", exit_code=1)
    assert "ahead of the lake" in ahead.stderr
    run(*named(ahead, "cursor", "rebuild"))
    run("run", "shop")
    assert {name: shop.changes(name) for name in TABLES} == whole


def test_k22_a_cursor_of_a_later_epoch_is_rebuilt(shop: MemoryShop) -> None:
    """By what `cursor rebuild` does, with a cursor in memory."""
    shop.run(transactions=6)
    good = shop.cursors.cursor
    assert good is not None
    shop.cursors = MemoryCursorStore(good.model_copy(update={"epoch": 2, "batch_number": 0}))
    with pytest.raises(LakeStateError, match="later than") as later:
        shop.run()
    assert commands_of(str(later.value)) == [["cursor", "rebuild", "shop"]]
    change = plan_rebuild(shop.config, cursors=shop.cursors, who="a person")
    apply_rebuild(shop.config, cursors=shop.cursors, change=change)
    shop.run()
    assert shop.suspended() == {}


def test_k22_before_the_first_run_a_run_is_named(shop: MemoryShop) -> None:
    sink = build_sink(shop.config)
    with (
        pytest.raises(LakeStateError) as early,
        admin_batch(sink, cursors=shop.cursors, doing="repair"),
    ):
        pass
    (words,) = commands_of(str(early.value))
    run(*words)
    assert shop.last_cut().batch_number > 0


def test_k22_wrong_names_lead_to_the_lists_of_right_ones(
    shop: MemoryShop, project: Project, tmp_path: Path
) -> None:
    run("run", "shop")
    with pytest.raises(ConfigError) as unknown:
        load_source(project.jobs, "nowhere")
    assert commands_of(str(unknown.value)) == [["validate"]]
    assert "shop" in run("validate").output
    assert (
        "shop.pair"
        in run(*named(run("run", "shop", "--table", "shop.nope", exit_code=None), "status")).output
    )
    side = ("backfill", "shop", "--into", tmp_path / "side", "--table")
    listed = run(*named(run(*side, "nope.nope", exit_code=None), "plan"))
    assert "shop.pair" in listed.output
    place = run(*side, "shop.pair", "--from", "nowhere", exit_code=None)
    assert named(place, "binlog")
    cuts = named(place, "cuts")
    assert run(*(word.replace("SOURCE", "shop") for word in cuts)).output
    run(*named(run("cuts", "show", "shop", "99", exit_code=None), "cuts"))
    with pytest.raises(TableNotInCutError) as absent:
        source_of(project.lake, "shop.nope")
    assert "shop.pair" in str(absent.value.expected)
    (shown,) = commands_of(str(absent.value))
    assert "shop.pair" in run(*shown).output
    with pytest.raises(TableNotInCutError, match="a lake with a cut"):
        source_of(tmp_path / "elsewhere", "shop.pair")
    settled = run("quarantine", "discard", "shop", "9.9", "--yes", exit_code=None)
    run(*named(settled, "quarantine"))
    (project.jobs / "shop.yaml").write_text("source: {}\n")
    mistakes = run("run", "shop", exit_code=2)
    assert run(*named(mistakes, "validate"), exit_code=None).exit_code == 2, (
        "it lists them until they are gone"
    )
