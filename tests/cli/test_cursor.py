"""``cdc-pipeline cursor``: on a real Dagster instance, a real MySQL server and recorded journals
(K3, K18, K19)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.cli.common import output
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.position.cursor import CursorState, Suspension, TargetState
from tests.servers import Server
from tests.support.captures import live
from tests.support.cursor_stores import log, state
from tests.support.dagster_runs import stored_run
from tests.support.fake_capture import cut, write_cut
from tests.support.lake_log import cuts_of
from tests.support.project import ROOT, Project

SHOP = ROOT / "cdc_pipeline" / "demo" / "shop"
KEY = dg.AssetKey(["shop", "cursor"])


def _run(*arguments: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=answer)


def _json(*arguments: object, exit_code: int = 0) -> Any:
    result = _run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def _cuts(project: Project) -> list[Cut]:
    return cuts_of(project.lake, "shop")


def _write(project: Project, source: dict[str, Any], **sections: Any) -> None:
    """A pipeline without captured tables: its runs move the cursor and start no JVM."""
    document = {
        "source": source,
        "tables": {"include": ["nowhere.*"], "allow_empty": True},
        "sink": {"lake_path": str(project.lake)},
        **sections,
    }
    (project.jobs / "shop.yaml").write_text(yaml.safe_dump(document))


@pytest.fixture
def archive(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(project.root)
    _write(project, {"kind": "archive", "directory": str(SHOP / "journals")})
    return project


@pytest.fixture
def middle() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SHOP / "recording.json").read_text())["middle"]
    return found


def _to(place: dict[str, Any]) -> list[str]:
    return ["--from", f"{place['journal']}:{place['offset']}"]


# -- show, history ---------------------------------------------------------------------------------


def test_show_and_history_before_the_first_run(archive: Project) -> None:
    shown = _json("cursor", "show", "shop")
    assert shown["cursor"] is None
    assert shown["agrees"] is True
    assert "a first run" in shown["next_run"]
    assert _json("cursor", "history", "shop") == []
    assert _run("cursor", "show", "shop").exit_code == 0
    assert "no cursor yet" in _run("cursor", "history", "shop").stderr


def test_p10_show_and_history_after_runs(archive: Project, middle: dict[str, Any]) -> None:
    first = _json("run", "shop", "--until", f"{middle['journal']}:{middle['offset']}")
    second = _json("run", "shop")
    assert first["cursor_reason"] == "no cursor and no cut: a first run"
    shown = _json("cursor", "show", "shop")
    assert shown["cursor"] == second["cursor"]
    assert shown["run_id"] == second["run_id"]
    assert second["run_id"][:8] in shown["where"]
    assert shown["oldest_needed"]["name"] == "cursor"
    entries = _json("cursor", "history", "shop")
    assert [entry["cursor"] for entry in entries] == [second["cursor"], first["cursor"]]
    assert [entry["run_id"] for entry in entries] == [second["run_id"], first["run_id"]]
    end = f"{second['cursor']['journal']}:{second['cursor']['offset']}"
    assert entries[0]["metadata"]["interval"] == f"{middle['journal']}:{middle['offset']} - {end}"
    assert len(_json("cursor", "history", "shop", "--limit", "1")) == 1
    text = _run("cursor", "history", "shop").stdout
    assert second["run_id"][:8] in text
    assert f"{middle['journal']}:{middle['offset']}" in text
    assert _run("cursor", "history", "shop", "--limit", "0").exit_code == 2
    status = _json("status", "shop", "--cursor")
    assert status["oldest_needed"]["position"]["offset"] == second["cursor"]["offset"]


def test_k3_status_tells_whether_it_is_of_the_cut_or_of_the_cursor(archive: Project) -> None:
    """Runs that apply nothing move the cursor alone, which files do not know; nor do they know that
    the cursor contradicts them."""
    made = _json("run", "shop")
    of_lake = _json("status", "shop")
    assert (of_lake["state"], of_lake["position_of"], of_lake["journal"]) == ("no_cut", "cut", "")
    assert "no run has applied anything" in of_lake["reason"]
    archive.lake.rename(archive.root / "away")
    assert f"there is no lake in {archive.lake}" in _json("status", "shop")["reason"]
    (archive.root / "away").rename(archive.lake)
    of_cursor = _json("status", "shop", "--cursor")
    assert (of_cursor["state"], of_cursor["position_of"]) == ("ready", "cursor")
    assert of_cursor["offset"] == made["cursor"]["offset"]
    elsewhere = CursorState.model_validate(made["cursor"]).model_copy(
        update={"batch_number": 1, "server_id": 99, "server_uuid": ""}
    )
    write_cut(archive.lake, cut(batch=1, tables={}).model_copy(update={"cursor": elsewhere}))
    assert "cut     " in _run("status", "shop").stdout
    assert _run("status", "shop").exit_code == 0
    assert _run("status", "shop", "--cursor").exit_code == 1


def test_k31_f100_a_lake_that_has_vanished_is_told_by_the_cursor_that_is_left(
    archive: Project,
) -> None:
    cursor = CursorState.model_validate(_json("run", "shop")["cursor"])
    after = cursor.model_copy(update={"batch_number": 1})
    write_cut(archive.lake, cut(batch=1, tables={}).model_copy(update={"cursor": after}))
    assert _run("cursor", "rebuild", "shop", "--yes").exit_code == 0
    shutil.rmtree(archive.lake)
    for command in ("status", "plan", "run"):
        told = _run(command, "shop")
        assert (command, told.exit_code) == (command, 1)
        assert "the lake was restored from a backup, replaced or deleted" in told.stderr
        assert "wipe the cursor asset in Dagster" in told.stderr
    assert "replaced or deleted" in _run("doctor", "shop", "--area", "state").stdout


def test_k3_events_that_are_no_cursor_are_named_in_the_run(
    archive: Project, instance: dg.DagsterInstance
) -> None:
    first = _json("run", "shop")
    reported = {"cursor": dg.MetadataValue.json(state(99).model_dump(mode="json"))}
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=reported))
    shown = _json("cursor", "show", "shop")
    assert shown["cursor"] == first["cursor"]
    assert "reported without a run" in shown["events_passed_over"][0]
    assert "ignored" in _run("cursor", "show", "shop").stdout
    assert "ignored" in _run("plan", "shop").stdout
    run_id = _json("run", "shop")["run_id"]
    observed = [
        (record.run_id, record.asset_observation.metadata["events_passed_over"].value)
        for record in instance.fetch_observations(KEY, limit=10).records
        if record.asset_observation is not None
        and "events_passed_over" in record.asset_observation.metadata
    ]
    assert [where for where, _ in observed] == [run_id]
    assert "reported without a run" in str(observed[0][1])


def test_p2_status_and_plan_tell_what_must_not_be_purged(
    archive: Project, middle: dict[str, Any]
) -> None:
    """A suspended table stands before the cursor (K4): the log is needed from there on."""
    at = Suspension(
        batch_number=1, error="MergeError", what="x", journal="binlog.000001", offset=157
    )
    made = _json("run", "shop")
    cursor = CursorState.model_validate(made["cursor"]).model_copy(update={"batch_number": 1})
    state_of = TargetState(
        table="nowhere.t", app_id="a", table_version=0, applied_batch=1, suspended=at
    )
    value = cut(batch=1, tables={"nowhere.t": 1})
    write_cut(
        archive.lake,
        value.model_copy(
            update={"cursor": cursor.model_copy(update={"targets": {"nowhere.t": state_of}})}
        ),
    )
    for command in ("status", "plan"):
        shown = _run(command, "shop", "--json")
        assert shown.exit_code == (command == "status"), "a table is suspended"
        needed = json.loads(shown.stdout)["oldest_needed"]
        place = needed["position"]
        assert (place["journal"], place["offset"]) == ("binlog.000001", 157)
        assert needed["name"] == "nowhere.t"
        text = " ".join(_run(command, "shop").stdout.split())
        assert "from binlog.000001:157 on, by" in text
        assert "nowhere.t" in text
    assert "nowhere.t" in _run("cursor", "show", "shop").stdout
    back = _json("cursor", "set", "shop", "--from", "earliest", "--yes")
    assert back["new"]["targets"]["nowhere.t"]["suspended"]["offset"] == 4


# -- rebuild ---------------------------------------------------------------------------------------


def test_k3_rebuild_of_a_lost_cursor_writes_that_of_the_last_cut(
    archive: Project, instance: dg.DagsterInstance
) -> None:
    value = cut(batch=3, tables={"shop.orders": 3})
    write_cut(archive.lake, value)
    shown = _json("cursor", "show", "shop")
    assert shown["agrees"] is False
    assert "rebuilt from cut 3" in shown["next_run"]
    done = _json("cursor", "rebuild", "shop")
    assert done["changed"] is True
    assert "no cursor is replaced by batch 3" in done["consequences"][0]
    assert _json("cursor", "show", "shop")["cursor"] == value.cursor.model_dump(mode="json")
    (entry,) = _json("cursor", "history", "shop")
    assert entry["metadata"]["notes"][0]["kind"] == "cursor_rebuilt"
    run = stored_run(instance, done["run_id"])
    assert (run.job_name, run.status) == (
        "shop_cursor_rebuild_command",
        dg.DagsterRunStatus.SUCCESS,
    )
    again = _json("cursor", "rebuild", "shop")
    assert again["changed"] is False
    assert "nothing to do" in _run("cursor", "rebuild", "shop").stdout
    assert len(_json("cursor", "history", "shop")) == 1


def test_k3_rebuild_of_a_cursor_ahead_of_the_lake_is_confirmed(
    archive: Project, instance: dg.DagsterInstance
) -> None:
    """The lake was restored from a backup: runs stop, and a person decides to go on from it."""
    value = cut(batch=3, tables={"shop.orders": 3})
    write_cut(archive.lake, value)
    log(instance, state(9, offset=9000), {})
    shown = _json("cursor", "show", "shop", exit_code=1)
    assert shown["stops"] is True
    assert "ahead of the lake" in shown["next_run"]
    assert _run("cursor", "show", "shop").exit_code == 1
    refused = _run("cursor", "rebuild", "shop")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert _json("cursor", "show", "shop", exit_code=1)["cursor"]["batch_number"] == 9
    done = _json("cursor", "rebuild", "shop", "--yes")
    assert "it replaced batch 9 at binlog.000003:9000" in done["notes"][0]["text"]
    assert _json("cursor", "show", "shop")["cursor"] == value.cursor.model_dump(mode="json")


def test_k3_k22_rebuild_where_another_lake_has_a_cut_of_the_cursors_number(
    archive: Project, instance: dg.DagsterInstance
) -> None:
    """A short cursor's tables are unknown then: runs stop, and the way out that they name works."""
    tables = {f"shop.orders_{number}": 1 for number in range(100)}
    cursor = cut(batch=3, tables=tables).cursor.model_copy(update={"offset": 9000})
    log(instance, cursor, {}, at_cut=cut(batch=3, tables=tables))
    other = cut(batch=3, tables={"shop.orders": 3})
    write_cut(archive.lake, other)
    shown = _json("cursor", "show", "shop", exit_code=1)
    assert (shown["stops"], shown["cursor"]["of_cut"]["targets"]) == (True, 100)
    assert "after another cut of its number" in shown["next_run"]
    assert "cdc-pipeline cursor rebuild shop --yes" in shown["next_run"]
    _json("cursor", "rebuild", "shop", "--yes")
    assert _json("cursor", "show", "shop")["cursor"] == other.cursor.model_dump(mode="json")


def test_k3_a_short_cursor_is_shown_with_what_its_cut_has(
    archive: Project, instance: dg.DagsterInstance
) -> None:
    value = cut(batch=3, tables={f"shop.orders_{number}": 1 for number in range(100)})
    write_cut(archive.lake, value)
    log(instance, value.cursor, {}, at_cut=value)
    shown = _json("cursor", "show", "shop")
    assert (shown["agrees"], shown["cursor"]) == (True, value.cursor.model_dump(mode="json"))


def test_k3_rebuild_without_a_cut_has_nothing_to_go_by(
    archive: Project, instance: dg.DagsterInstance
) -> None:
    assert _json("cursor", "rebuild", "shop")["changed"] is False
    log(instance, state(9), {})
    refused = _run("cursor", "rebuild", "shop", "--yes")
    assert refused.exit_code == 1
    assert "ahead of the lake" in refused.stderr


# -- set: usage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--from", "nonsense"],
        ["--from", " "],
    ],
)
def test_a_place_that_cannot_be_is_wrong_usage(archive: Project, options: list[str]) -> None:
    assert _run("cursor", "set", "shop", "--yes", *options).exit_code == 2


def test_k3_set_is_refused_where_nobody_confirms(archive: Project, middle: dict[str, Any]) -> None:
    _json("run", "shop")
    before = _json("cursor", "history", "shop")
    for options in ([], ["--json"]):
        refused = _run("cursor", "set", "shop", *_to(middle), *options)
        assert refused.exit_code == 2
        assert "--yes" in refused.stderr
    assert _json("cursor", "history", "shop") == before
    assert _cuts(archive) == []


def test_k3_set_asks_and_shows_what_it_means(
    archive: Project, middle: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _json("run", "shop")
    before = _json("cursor", "history", "shop")
    monkeypatch.setattr(output, "is_interactive", lambda: True)
    declined = _run("cursor", "set", "shop", *_to(middle), answer="n\n")
    assert declined.exit_code == 1
    for part in (
        "the cursor of shop will move. Continue?",
        "read again",
        "may reappear",
        f"{middle['journal']}:{middle['offset']}",
    ):
        assert part in " ".join(declined.stderr.split())
    assert _json("cursor", "history", "shop") == before
    done = _run("cursor", "set", "shop", *_to(middle), answer="y\n")
    assert done.exit_code == 0, done.output
    assert "is now batch 1" in done.stdout
    assert _json("cursor", "show", "shop")["cursor"]["offset"] == middle["offset"]


def test_k16_set_waits_for_no_writer_but_says_who_holds_the_lock(
    archive: Project, middle: dict[str, Any]
) -> None:
    _json("run", "shop")
    before = _json("cursor", "show", "shop")
    with writer_lock(archive.lake / "_cdc" / "shop" / "writer.lock"):
        refused = _run("cursor", "set", "shop", *_to(middle), "--yes")
    assert refused.exit_code == 1
    assert "another run is writing" in refused.stderr
    assert _json("cursor", "show", "shop") == before
    assert _cuts(archive) == []


# -- set: kills ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("before_record", marks=pytest.mark.whole),
        "after_record",
        pytest.param("before_cursor", marks=pytest.mark.whole),
    ],
)
def test_k3_a_set_that_is_killed_is_finished_by_the_next_run_or_never_was(
    archive: Project, middle: dict[str, Any], point: str
) -> None:
    """Before the record nothing has happened; from the record on the next run goes on from the
    place that was set."""
    end = _json("run", "shop")["cursor"]
    killed = subprocess.run(
        [sys.executable, "-m", "tests.operations.cursor.set_child", str(archive.jobs), "shop",
            middle["journal"],
         str(middle["offset"]), point],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    if point == "after_record":
        assert _json("cursor", "show", "shop")["unfinished_batch"] == 1
        refused = _run("cursor", "set", "shop", "--from", "latest", "--yes")
        assert refused.exit_code == 1
        assert "unfinished" in refused.stderr
    report = _json("run", "shop")
    if point == "before_record":
        assert report["plan"]["start"]["offset"] == end["offset"]
        assert _cuts(archive) == []
        return
    assert (report["plan"]["start"]["journal"], report["plan"]["start"]["offset"]) == (
        middle["journal"],
        middle["offset"],
    )
    assert report["plan"]["start"]["gtid_set"] == middle["gtid_set"]
    assert {**report["cursor"], "batch_number": 0} == {**end, "batch_number": 0}
    (made,) = _cuts(archive)
    assert (made.kind, made.notes[0].kind) == ("cursor_set", "cursor_set")
    entries = _json("cursor", "history", "shop")
    assert [entry["cursor"]["batch_number"] for entry in entries] == [1, 1, 0]
    if point == "before_cursor":
        assert "moved to cut 1" in entries[1]["metadata"]["cursor_reason"]
        assert "moved to cut 1" in report["cursor_reason"]
        assert "recovered" in _run("cursor", "history", "shop").stdout


# -- set: a real server ----------------------------------------------------------------------------


@pytest.fixture
def on_server(
    project: Project, mysql_server: Server, mysql_database: str, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """A pipeline on the shared server whose cursor stands where the log ended when it began."""
    monkeypatch.chdir(project.root)
    _write(project, live(mysql_server), start="latest")
    assert _json("run", "shop")["cursor"]["batch_number"] == 0
    mysql_server.execute(
        f"CREATE TABLE `{mysql_database}`.t (id INT PRIMARY KEY, note VARCHAR(20))"
    )
    return project


def _insert(server: Server, database: str, first: int) -> None:
    connection = server.root_connection(database=database, autocommit=False)
    with connection.cursor() as cursor:
        for key in range(first, first + 3):
            cursor.execute("INSERT INTO t VALUES (%s, 'x')", (key,))
    connection.commit()
    connection.close()


@pytest.mark.mysql
def test_k3_set_checks_the_place_against_the_server(
    on_server: Project, mysql_server: Server, mysql_database: str
) -> None:
    journal, start = mysql_server.end_position()
    _insert(mysql_server, mysql_database, 1)
    events = mysql_server.query(f"SHOW BINLOG EVENTS IN '{journal}' FROM {start}")
    inside_transaction = next(int(row[1]) for row in events if row[2] == "Write_rows")
    before = _json("cursor", "show", "shop")
    # P7: inside a transaction the cursor would stand before it. Nobody confirms here, so nothing is
    # written.
    asked = _run("cursor", "set", "shop", "--from", f"{journal}:{inside_transaction}")
    assert asked.exit_code == 2, asked.output
    assert "back to its begin" in " ".join(asked.output.split())
    for options, error in [
        (["--from", f"{journal}:{start + 1}"], "no complete event at the offset"),
        (["--from", f"{journal}:999999999"], "not an event boundary"),
        (["--from", "binlog.999999"], "not on the server"),
        (["--from", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9"], "has not executed"),
    ]:
        refused = _run("cursor", "set", "shop", "--yes", *options)
        assert refused.exit_code == 1, refused.output
        assert error in refused.stderr
    assert _json("cursor", "show", "shop") == before
    assert _cuts(on_server) == []


@pytest.mark.mysql
def test_k3_set_back_and_forward_leave_records_and_the_next_run_agrees(
    on_server: Project, mysql_server: Server, mysql_database: str, instance: dg.DagsterInstance
) -> None:
    journal, offset = mysql_server.end_position()
    gtids = mysql_server.gtid_set()
    _insert(mysql_server, mysql_database, 1)
    at_end = _json("run", "shop")["cursor"]

    back = _json(
        "cursor", "set", "shop", "--from", f"{journal}:{offset}", "--reason", "once more", "--yes"
    )
    assert back["direction"] == "back"
    assert back["new"]["gtid_set"] == gtids
    assert "1 transaction (" in " ".join(back["consequences"])
    run = stored_run(instance, back["run_id"])
    assert (run.job_name, run.status) == ("shop_cursor_set_command", dg.DagsterRunStatus.SUCCESS)
    (first,) = _cuts(on_server)
    assert (first.kind, first.batch_number, first.cursor.offset) == ("cursor_set", 1, offset)
    (note,) = first.notes
    for part in (
        f"{at_end['journal']}:{at_end['offset']}",
        f"{journal}:{offset}",
        output.operator(),
        "once more",
    ):
        assert part in note.text
    shown = _json("cursor", "show", "shop")
    assert shown["agrees"] is True
    assert shown["last_cut"]["kind"] == "cursor_set"
    assert _json("plan", "shop")["start"]["offset"] == offset
    report = _json("run", "shop")
    assert report["interval"]["transactions_seen"] >= 1
    assert {**report["cursor"], "batch_number": 0} == at_end

    same = _json("cursor", "set", "shop", "--from", "latest", "--yes")
    assert (same["changed"], same["direction"]) == (False, "same")
    _insert(mysql_server, mysql_database, 10)
    forward = _json("cursor", "set", "shop", "--from", "latest", "--yes")
    assert forward["direction"] == "forward"
    assert "1 transaction (" in " ".join(forward["consequences"])
    assert [note.kind for note in _cuts(on_server)[-1].notes] == ["cursor_set", "gap"]
    idle = _json("run", "shop")
    assert idle["interval"]["transactions_seen"] == 0
    assert idle["cursor"]["batch_number"] == 2
    notes = [entry["metadata"].get("notes", []) for entry in _json("cursor", "history", "shop")]
    assert [note["kind"] for found in notes for note in found] == [
        "cursor_set",
        "gap",
        "cursor_set",
    ]

    by_set = _json("cursor", "set", "shop", "--from", gtids, "--yes")
    assert by_set["direction"] == "back"
    assert _json("run", "shop")["interval"]["transactions_seen"] == 2


@pytest.mark.mysql
def test_k1_set_on_a_log_that_was_numbered_anew_begins_an_epoch(
    project: Project, start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old cursor stops runs there; what comes after the set counts as newer than all before."""
    server = start_server("mysql")
    monkeypatch.chdir(project.root)
    server.execute_all(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, note VARCHAR(20))"
    )
    for _ in range(3):
        server.flush_journal()
    _write(project, live(server))
    _json("run", "shop")
    server.execute("RESET BINARY LOGS AND GTIDS")
    _insert(server, "d", 1)
    assert _run("run", "shop").exit_code == 1
    done = _json("cursor", "set", "shop", "--from", "earliest", "--yes")
    assert (done["direction"], done["new"]["epoch"]) == ("back_and_forward", 2)
    assert "epoch" in " ".join(done["consequences"])
    report = _json("run", "shop")
    assert report["interval"]["transactions_seen"] == 1
    assert report["cursor"]["epoch"] == 2


def test_k3_a_cursor_that_moved_since_the_plan_is_not_set(
    archive: Project, middle: dict[str, Any]
) -> None:
    """The plan was shown to a person; another run came between it and the answer."""
    from cdc_pipeline.config.pipeline_config import PositionConfig, load_config
    from cdc_pipeline.errors import CursorError
    from cdc_pipeline.operations.cursor.cursor_change import apply_set, plan_set
    from cdc_pipeline.position.cursor import MemoryCursorStore
    from cdc_pipeline.run.capture.capture import capture

    config = load_config(Path("jobs") / "shop.yaml")
    cursors = MemoryCursorStore()
    place = PositionConfig(journal=middle["journal"], offset=middle["offset"])
    change = plan_set(config, cursors=cursors, to=place, who="a test")
    assert (change.old, change.direction) == (None, "first")
    capture(config, cursors=cursors)
    with pytest.raises(CursorError, match="has moved since"):
        apply_set(config, cursors=cursors, change=change)
    found = cursors.read()
    assert isinstance(found, CursorState)
    assert found.batch_number == 0
    assert _cuts(archive) == []
