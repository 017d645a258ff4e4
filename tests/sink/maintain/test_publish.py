"""What `sink.publish` shows to readers by SQL, while runs go on, fail and are killed."""

from __future__ import annotations

import errno
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.config.pipeline_config import PipelineConfig, SinkConfig
from cdc_pipeline.errors import PublicationError, TargetSuspendedError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.maintain.publish import is_read, publish, published_versions
from cdc_pipeline.sink.read.cuts import find_cut, list_cuts
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.crash_children import run_child
from tests.support.kills import killed_at
from tests.support.project import ROOT
from tests.support.sink_values import applied, column, insert, table_schema

_VIEW = re.compile(r'VIEW "live"\."(\w+)" AS SELECT .*/(\w+)\', version => (\d+)\)')


def shown(file: Path) -> tuple[int, dict[str, int]]:
    """The cut that the file names, and the versions that its views read."""
    text = file.read_text(encoding="utf-8")
    assert text.endswith("COMMIT;\n"), "the file is whole"
    number = re.match(r"-- cut (\d+) of bank", text)
    assert number is not None
    views = {folder: int(version) for _, folder, version in _VIEW.findall(text)}
    assert len(views) == text.count("CREATE OR REPLACE VIEW")
    return int(number[1]), views


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_provider: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr("cdc_pipeline.sink.spark.session.SparkProvider.session", refuse)


@pytest.fixture
def published(
    server: Server, fresh_database: str, make_config: Callable[..., PipelineConfig], tmp_path: Path
) -> PipelineConfig:
    server.execute_all(
        f"USE `{fresh_database}`",
        *(
            f"CREATE TABLE `{name}` (id INT PRIMARY KEY, cents BIGINT NOT NULL)"
            for name in ("left", "right")
        ),
    )
    sink = {
        "lake_path": tmp_path / "lake",
        "spark": SPARK,
        "publish": {"database": "live", "duckdb": str(tmp_path / "sql" / "live.sql")},
    }
    return make_config(live(server), include=[f"{fresh_database}.*"], start=here(server), sink=sink)


def move(server: Server, database: str, cents: int) -> None:
    server.execute_all(
        f"USE `{database}`",
        "BEGIN",
        f"INSERT INTO `left` VALUES (1, -{cents}) ON DUPLICATE KEY UPDATE cents = cents - {cents}",
        f"INSERT INTO `right` VALUES (1, {cents}) ON DUPLICATE KEY UPDATE cents = cents + {cents}",
        "COMMIT",
    )


@pytest.mark.usefixtures("no_jvm")
def test_k3_the_file_shows_whole_cuts_while_runs_publish_and_are_killed(
    published: PipelineConfig, server: Server, fresh_database: str
) -> None:
    assert published.sink.publish is not None
    assert published.sink.publish.duckdb is not None
    file, lake = published.sink.publish.duckdb, published.sink.lake_path
    cursors = MemoryCursorStore()
    server.execute_all(
        f"USE `{fresh_database}`",
        *(f"INSERT INTO `{name}` VALUES (0, 0)" for name in ("left", "right")),
    )

    def run() -> None:
        sink = DeltaSink(source="bank", config=published.sink)
        capture(published, cursors=cursors, sink=sink)

    run()
    seen, ended = dict[int, dict[str, int]](), threading.Event()

    def read() -> None:
        while not ended.is_set():
            number, views = shown(file)
            assert seen.setdefault(number, views) == views

    reader = threading.Thread(target=read)
    reader.start()
    points = ("before_cut", "before_cursor", "before_ack", "before_published")
    for cents, point in enumerate(points, 1):
        move(server, fresh_database, cents)
        before = shown(file)
        with killed_at(point):
            run()
        assert shown(file) == before
        run()  # without changes
        assert shown(file)[0] == find_cut(LakePaths(lake, "bank")).batch_number
    ended.set()
    reader.join()
    cuts = {cut.number: cut.tables for cut in list_cuts(lake, "bank")}
    for number, views in seen.items():
        assert views == {name.partition(".")[2]: at for name, at in cuts[number].items()}
    written_ns = file.stat().st_mtime_ns
    run()
    assert file.stat().st_mtime_ns == written_ns, "what is published is not written again"
    file.unlink()
    run()
    assert shown(file)[0] == max(cuts)


@pytest.mark.usefixtures("no_jvm")
def test_k35_a_failure_is_told_loses_nothing_and_is_made_good_by_the_next_run(
    published: PipelineConfig, server: Server, fresh_database: str, tmp_path: Path
) -> None:
    assert published.sink.publish is not None
    assert published.sink.publish.duckdb is not None
    cursors, file = MemoryCursorStore(), published.sink.publish.duckdb
    file.parent.write_text("no folder")
    move(server, fresh_database, 5)
    sink = DeltaSink(source="bank", config=published.sink)
    with pytest.raises(PublicationError, match="is not published"):
        capture(published, cursors=cursors, sink=sink)
    cursor = cursors.read()
    cut = find_cut(LakePaths(published.sink.lake_path, "bank"))
    assert cursor is not None
    assert cursor.batch_number == cut.batch_number
    file.parent.unlink()
    report = capture(published, cursors=cursors)
    assert report.outcome == "nothing_new"
    assert shown(file)[0] == cut.batch_number


@pytest.mark.usefixtures("no_jvm")
def test_views_follow_tables_that_are_dropped_new_and_suspended(
    published: PipelineConfig, server: Server, fresh_database: str
) -> None:
    assert published.sink.publish is not None
    assert published.sink.publish.duckdb is not None
    cursors, file = MemoryCursorStore(), published.sink.publish.duckdb
    move(server, fresh_database, 5)
    capture(published, cursors=cursors)
    assert set(shown(file)[1]) == {"left", "right"}
    server.execute_all(
        f"USE `{fresh_database}`", "DROP TABLE `right`", "CREATE TABLE newer (id INT PRIMARY KEY)"
    )
    capture(published, cursors=cursors)
    cut = find_cut(LakePaths(published.sink.lake_path, "bank"))
    assert set(shown(file)[1]) == {name.partition(".")[2] for name in cut.tables}
    assert "newer" in shown(file)[1]
    server.execute_all(f"INSERT INTO `{fresh_database}`.newer VALUES (1)")
    log = (
        LakePaths(published.sink.lake_path, "bank").table(f"{fresh_database}.newer") / "_delta_log"
    )
    for entry in log.iterdir():
        entry.unlink()
    with pytest.raises(TargetSuspendedError):
        capture(published, cursors=cursors)
    assert "newer" not in shown(file)[1]


def test_k15_what_published_views_read_outlives_the_retention(
    published: PipelineConfig, server: Server, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog fails, runs go on: files of what readers are still shown stay."""
    cursors, paths = MemoryCursorStore(), LakePaths(published.sink.lake_path, "bank")
    table = f"{fresh_database}.left"
    move(server, fresh_database, 5)
    capture(published, cursors=cursors)
    read = (published_versions(paths) or {})[table]
    assert not is_read(paths, table, retention_us=0), "the table has these files still"
    move(server, fresh_database, 6)

    def refuse(*_args: object) -> None:
        raise OSError("no catalog")

    monkeypatch.setattr("cdc_pipeline.sink.maintain.publish._write_file", refuse)
    with pytest.raises(PublicationError):
        capture(published, cursors=cursors)
    assert (published_versions(paths) or {})[table] == read
    assert is_read(paths, table, retention_us=0)
    assert not is_read(paths, table, retention_us=3_600_000_000), "a vacuum takes no young file"
    monkeypatch.undo()
    capture(published, cursors=cursors)
    assert not is_read(paths, table, retention_us=0)
    (paths.state / "published.json").write_text("{")
    assert published_versions(paths) is None
    assert is_read(paths, table, retention_us=3_600_000_000), "what is not known may be read"


@pytest.mark.usefixtures("no_jvm")
def test_k15_while_one_kind_of_readers_is_not_shown_again_nothing_is_known_of_both(
    published: PipelineConfig, server: Server, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory was damaged: that of the catalog's views does not become that there are none."""
    paths, sink = LakePaths(published.sink.lake_path, "bank"), published.sink
    move(server, fresh_database, 5)
    capture(published, cursors=MemoryCursorStore())
    assert sink.publish is not None
    both = sink.publish.model_copy(update={"catalog": True})
    sink, cut = sink.model_copy(update={"publish": both}), find_cut(paths)
    (paths.state / "published.json").write_text("{")

    def show() -> PublicationError | None:
        return publish(
            paths,
            sink,
            cut,
            newest=lambda newest: newest,
            session=lambda: None,  # type: ignore[arg-type,return-value]
            check_lock=lambda: None,
        )

    assert show() is not None, "there is no session"
    assert published_versions(paths) is None
    for name in ("new_session", "_to_catalog"):
        monkeypatch.setattr(f"cdc_pipeline.sink.maintain.publish.{name}", lambda *_: None)
    with monkeypatch.context() as patched:

        def refuse(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left")

        patched.setattr("cdc_pipeline.sink.maintain.publish._remember", refuse)
        assert show() is not None, "returned, not raised"
    assert show() is None
    assert published_versions(paths) == {n: t.table_version for n, t in cut.tables.items()}


class Catalog:
    """Databases with their comments and views, for the statements of a publication."""

    def __init__(self) -> None:
        self.comments, self.views = dict[str, str](), dict[str, dict[str, str]]()

    def sql(self, statement: str) -> Catalog:
        names, self.rows = re.findall(r"`(\w+)`", statement), list[Any]()
        if statement.startswith("CREATE SCHEMA"):
            made = re.search(r"COMMENT '(.*)'$", statement)
            self.comments.setdefault(names[0], made[1] if made else "")
            self.views.setdefault(names[0], {})
        elif statement.startswith("DESCRIBE SCHEMA"):
            self.rows = [("Comment", self.comments[names[0]])]
        elif statement.startswith("CREATE OR REPLACE VIEW"):
            view = statement.partition(" AS ")[0].rpartition(".")[2].strip("`")
            self.views[names[0]][view] = statement
        elif statement.startswith("SHOW VIEWS"):
            self.rows = [{"viewName": view} for view in self.views[names[0]]]
        elif statement.startswith("SHOW CREATE"):
            self.rows = [(self.views[names[0]][names[1]],)]
        elif statement.startswith("SHOW SCHEMAS"):
            self.rows = [(name,) for name in self.views if "_cut_" in name]
        elif statement.startswith("DROP SCHEMA"):
            del self.views[names[0]], self.comments[names[0]]
        return self

    def collect(self) -> list[Any]:
        return self.rows


@pytest.mark.parametrize("lakes", [("lake", "lake"), ("lake", "other")])
@pytest.mark.parametrize("kind", ["catalog", "duckdb"])
def test_k16_f160_what_another_source_has_published_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lakes: tuple[str, str]
) -> None:
    """Of one lake, or a source of the same name of another one; numbers of cuts overlap."""
    catalog, file = Catalog(), tmp_path / "live.sql"
    monkeypatch.setattr("cdc_pipeline.sink.maintain.publish.new_session", lambda given: given)
    names = ("b", "a") if lakes[0] == lakes[1] else ("b", "b")
    there = {"catalog": True} if kind == "catalog" else {"duckdb": str(file)}
    asked = {"database": "live", **there}
    configs = [
        SinkConfig.model_validate({"lake_path": tmp_path / lake, "publish": asked})
        for lake in lakes
    ]
    sinks = [
        DeltaSink(source=name, config=config) for name, config in zip(names, configs, strict=True)
    ]
    items = table_schema("b.items", [column("id", Kind.INT32)], "id")
    orders = table_schema("a.orders", [column("id", Kind.INT32)], "id")

    def show(sink: DeltaSink, number: int, schema: TableSchema) -> PublicationError | None:
        with sink.lock():
            applied(sink, number, (schema, [insert(id=number)], number))
        paths, cut = sink.paths, find_cut(sink.paths)
        config = configs[sinks.index(sink)]
        return publish(
            paths,
            config,
            cut,
            newest=lambda newest: newest,
            session=lambda: catalog,  # type: ignore[arg-type,return-value]
            check_lock=lambda: None,
        )

    for number in (1, 2):
        assert show(sinks[0], number, items) is None
    before = {name: dict(views) for name, views in catalog.views.items()}
    text = file.read_bytes() if kind == "duckdb" else b""
    refused = show(sinks[1], 1, orders)
    assert catalog.views == before
    assert kind == "catalog" or file.read_bytes() == text
    assert refused is not None
    assert f"b in {tmp_path / 'lake'}" in str(refused.got)
    assert "name another one" in str(refused.next_step)
    assert show(sinks[0], 3, items) is None, "its own goes on"
    assert not published_versions(sinks[1].paths)


@pytest.mark.nightly
@pytest.mark.spark
def test_k3_a_metastore_shows_whole_cuts_while_runs_publish_and_are_killed(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        *(
            f"CREATE TABLE `{name}` (id INT PRIMARY KEY, cents BIGINT NOT NULL)"
            for name in ("left", "right")
        ),
    )
    start = here(mysql_server)
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "INSERT INTO `left` VALUES (1, 1000), (2, 500)",
        "INSERT INTO `right` VALUES (1, 1000), (2, 500)",
    )
    derby = f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true"
    settings: dict[str, Any] = SPARK["settings"] | {  # type: ignore[operator]
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": derby,
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={tmp_path}/derby.log",
    }
    document = {
        "name": "bank",
        "source": live(mysql_server),
        "tables": {"include": [f"{mysql_database}.*"]},
        "start": start,
        "sink": {
            "lake_path": str(tmp_path / "lake"),
            "spark": {**SPARK, "settings": settings},
            "publish": {"database": "live", "catalog": True, "plain": True},
        },
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    done = run_child(
        [str(file), str(mysql_server.port), mysql_database],
        environment={"PYTHONPATH": str(ROOT)},
        folder=tmp_path,
        module="tests.sink.maintain.publish_child",
        timeout_s=1200,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["torn"] == []
    assert told["seen"] >= 3
    assert told["newest"]
    assert told["grew"] >= 4
    assert told["kept"] == 3
    assert told["sum"] == 3000
    assert told["views"] == [["later", "left", "right", "yours"], ["later", "left", "right"]]
    assert told["idle"]
    assert all("sink.publish.catalog" in failure for failure in told["failures"])
    assert told["captured"] == told["published"] == told["maintained"] == [[7]]
