"""Journals that Spark's executors read end in the same lake as those that this process reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cdc_pipeline.version
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.capture.segments import survey
from cdc_pipeline.run.capture.segments.division import Parallel, division
from cdc_pipeline.run.capture.segments.segment import WaveInputs, decode_segment
from cdc_pipeline.run.capture.segments.survey import Segment
from cdc_pipeline.sink.apply import append, executors
from cdc_pipeline.sink.apply.executors import executor_refusal
from tests.servers import Server
from tests.support.captures import SPARK, live
from tests.support.delta_reader import newest_rows
from tests.support.kills import killed_at
from tests.support.memory_modes import comparable
from tests.support.memory_shop import MemoryShop, memory_shop
from tests.support.memory_sink import MemoryTables
from tests.support.workload import Workload, create_tables

EVERYTHING = Parallel(stretch_bytes_min=0)
SALT = "a salt of many characters"
Work = Callable[[str], str]


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction is a segment of its own."""
    monkeypatch.setattr(survey, "SEGMENT_BYTES", 1)


def _rows(shop: MemoryShop) -> dict[str, list[str]]:
    return {name: sorted(map(repr, shop.rows(name))) for name in shop.last_cut().tables}


def _newest_schemas(shop: MemoryShop) -> dict[tuple[str, str], Any]:
    """The last version of each table in the schema history; older ones, and tables that are gone,
    leave it as the cursor moves."""
    history = json.loads(shop.paths.schema_history.read_text(encoding="utf-8"))
    newest = {(of["database"], of["table"]): of["versions"][-1] for of in history["tables"]}
    return {table: version for table, version in newest.items() if version["schema"] is not None}


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize(
    ("journal", "sections"),
    [
        ("mysql-common", {}),
        ("mysql-common", {"targets": [{"tables": ["*.*"], "mode": "changelog"}]}),
        ("mariadb-common", {"targets": [{"tables": ["*.*"], "mode": "soft_delete"}]}),
        ("mysql-compressed-tagged-json", {}),
        ("mysql-partial-json", {}),
        ("mariadb-compressed-columns", {}),
        # Behind its CREATEs: tables are known by their maps alone.
        ("mysql-common", {"start": {"journal": "binlog.000001", "offset": 5822}}),
    ],
)
def test_k1_k13_segments_end_in_the_lake_that_one_reader_makes(
    tmp_path: Path, journal: str, sections: dict[str, Any]
) -> None:
    """Keys, no keys, DDL, XA, savepoints, JSON differences: rows with their seq, GTIDs, history."""
    make = partial(memory_shop, include=["*.*"], journal=journal, **sections)
    alone, apart = make(tmp_path / "alone"), make(tmp_path / "apart")
    expected, report = alone.run(), apart.run(parallel=EVERYTHING)
    assert report.parallel is not None
    assert report.parallel.bytes_parallel > 0
    assert report.interval == expected.interval
    assert _rows(apart) == _rows(alone)
    assert report.cursor is not None
    assert expected.cursor is not None
    assert report.cursor.position == expected.cursor.position
    assert report.cursor.gtid_set == expected.cursor.gtid_set
    assert _newest_schemas(apart) == _newest_schemas(alone)
    assert not list(apart.paths.staging_root.iterdir())


@pytest.mark.usefixtures("small_segments")
def test_k2_a_recorded_batch_needs_its_journals_no_more(tmp_path: Path) -> None:
    alone, shop = (memory_shop(tmp_path / name, include=["*.*"]) for name in ("alone", "apart"))
    alone.run()
    with killed_at("after_record"):
        shop.run(parallel=EVERYTHING)
    record = BatchRecord.model_validate_json(shop.paths.batch(1).read_text())
    assert any(target.files for target in record.targets) or record.targets
    journal = tmp_path / "apart" / "journals" / "binlog.000001"
    content = journal.read_bytes()
    journal.write_bytes(b"\xfebin of another log")
    with pytest.raises(CdcError):
        shop.run(parallel=EVERYTHING)
    assert shop.last_cut().batch_number == 1, "the batch was finished from its own files"
    journal.write_bytes(content)
    shop.run(parallel=EVERYTHING)
    assert _rows(shop) == _rows(alone)


@pytest.mark.usefixtures("small_segments")
def test_k2_what_executors_staged_elsewhere_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors with a disk of their own under the lake's path."""
    alone, shop = (memory_shop(tmp_path / name, include=["*.*"]) for name in ("alone", "apart"))
    alone.run()

    def run(_tables: MemoryTables, tasks: Sequence[str], work: Work) -> list[str]:
        results = [work(task) for task in tasks]
        for file in shop.paths.staging_root.rglob("part-*/*.parquet"):
            file.unlink()
        return results

    monkeypatch.setattr(MemoryTables, "run_tasks", run)
    report = shop.run(parallel=EVERYTHING)
    assert report.parallel is not None
    assert report.parallel.batches == 0
    assert any("does not find" in why for why in report.parallel.one_after_the_other)
    assert _rows(shop) == _rows(alone)


def test_k24_a_task_refuses_another_journal_of_the_same_name(tmp_path: Path) -> None:
    shop = memory_shop(tmp_path, include=["*.*"])
    inputs = WaveInputs(
        config=shop.config,
        directory=tmp_path / "journals",
        cut="",
        cursor="",
        identity=shop.run().cursor.identity,  # type: ignore[union-attr]
        uses_gtids=True,
        number=1,
        epoch=1,
    )
    task = Segment(journal="binlog.000001", start=4, stop=500, created_s=1)
    assert "another journal" in decode_segment(task, inputs).refused


@pytest.mark.usefixtures("small_segments")
def test_k14_k26_tasks_get_no_salt_and_leave_hashed_columns_to_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked = [{"tables": ["*.pair"], "masks": {"b": {"hash": {"salt": SALT}}}}]
    alone, shop = (
        memory_shop(tmp_path / name, include=["*.*"], targets=masked) for name in ("alone", "apart")
    )
    alone.run()
    shipped: list[PipelineConfig] = []

    def run(_tables: MemoryTables, tasks: Sequence[str], work: Any) -> list[str]:
        named = work.keywords["work"].keywords
        shipped.append(named["config"] if "config" in named else named["inputs"].config)
        return [work(task) for task in tasks]

    monkeypatch.setattr(MemoryTables, "run_tasks", run)
    report = shop.run(parallel=EVERYTHING)
    assert shipped
    for config in shipped:
        (rule,) = config.targets
        assert [mask.hash.salt.get_secret_value() for mask in rule.masks.values()] == [""]
    assert report.parallel is not None
    assert any("the salt of hashed columns" in why for why in report.parallel.one_after_the_other)
    assert _rows(shop) == _rows(alone)


def test_a_run_that_executors_cannot_read_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = memory_shop(tmp_path, include=["*.*"])
    monkeypatch.setattr(MemoryTables, "executor_refusal", lambda _tables: "they lack a package")
    report = shop.run(parallel=EVERYTHING)
    assert report.batches
    (note,) = [note for note in report.notes if note.kind == "decoded_in_driver"]
    assert note.text.startswith("they lack a package; all rows are decoded in the driver")
    assert str(report.parallel) == "the driver: they lack a package"


def test_little_is_read_here_without_asking_executors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = memory_shop(tmp_path, include=["*.*"], batch={"decode": "executors"})
    monkeypatch.setattr(MemoryTables, "executor_refusal", lambda _tables: 1 / 0)
    report = shop.run()
    assert report.parallel is not None
    assert report.parallel.one_after_the_other == ("too small to be worth a task",)
    assert not report.notes


def test_executors_read_huge_runs_on_a_cluster_alone(tmp_path: Path) -> None:
    def is_divided(master: str, bytes_expected: int, **batch: Any) -> bool:
        sink = {"lake_path": tmp_path, "spark": {"master": master}}
        document = {
            "name": "shop",
            "source": {"kind": "archive", "directory": tmp_path},
            "batch": batch,
            "sink": sink,
        }
        config = PipelineConfig.model_validate(document)
        return not isinstance(division(config, bytes_expected=bytes_expected), str)

    assert not is_divided("local[*]", 1 << 40, decode="auto")
    assert is_divided("spark://there:7077", 1 << 40, decode="auto")
    assert not is_divided("spark://there:7077", 1 << 20, decode="auto")
    assert is_divided("spark://there:7077", 1 << 20, decode="auto", executors_bytes_min=1 << 20)
    assert is_divided("spark://there:7077", 1 << 40), "the default"
    assert not is_divided("local", 1 << 40)
    assert is_divided("local-cluster[1,1,1024]", 1 << 40)
    assert is_divided("local[2]", 0, decode="executors")
    assert not is_divided("spark://there:7077", 1 << 40, decode="driver")


@pytest.mark.mysql
@pytest.mark.whole
@pytest.mark.usefixtures("small_segments")
def test_k5_what_a_server_has_purged_is_read_on_executors_and_the_rest_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped: list[PipelineConfig] = []

    def run(_tables: MemoryTables, tasks: Sequence[str], work: Any) -> list[str]:
        named = work.keywords["work"].keywords
        shipped.append(named["config"] if "config" in named else named["inputs"].config)
        return [work(task) for task in tasks]

    monkeypatch.setattr(MemoryTables, "run_tasks", run)
    with Server("mysql") as server:
        server.execute("CREATE DATABASE shop")
        create_tables(server, "shop")
        workload = Workload(server, "shop", seed=3)
        for _ in range(3):
            workload.run(5)
            server.flush_journal()
        server.copy_journals(tmp_path / "archive")
        server.purge_to(server.journals()[-1].name)
        workload.run(5)
        workload.close()
        source = live(server) | {"archive_directory": tmp_path / "archive"}
        shops = []
        for name in ("alone", "apart"):
            document = {
                "name": "shop",
                "source": source,
                "tables": {"include": ["shop.*"]},
                "start": "earliest",
                "sink": {"lake_path": tmp_path / name},
            }
            shops.append(MemoryShop(PipelineConfig.model_validate(document)))
        alone, apart = shops
        expected, report = alone.run(), apart.run(parallel=EVERYTHING)
    assert report.parallel is not None
    assert report.parallel.tasks > 3
    assert _rows(apart) == _rows(alone)
    assert report.cursor is not None
    assert expected.cursor is not None
    assert report.cursor.gtid_set == expected.cursor.gtid_set
    assert all(config.source.kind == "archive" for config in shipped), "no account (K26)"


@pytest.mark.spark
@pytest.mark.whole
def test_k2_executors_write_the_same_delta_tables(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "_EXECUTORS_BYTES_MIN", 0)
    monkeypatch.setattr(append, "_TASK_BYTES", 1)
    monkeypatch.setattr(survey, "SEGMENT_BYTES", 1)
    make = partial(memory_shop, include=["shop.*"], sink={"spark": SPARK})
    alone = make(tmp_path / "alone", batch={"decode": "driver"})
    report = alone.run()
    assert report.parallel is not None
    assert report.parallel.one_after_the_other == ("batch.decode is driver",)
    apart = make(tmp_path / "apart", batch={"decode": "executors"})
    monkeypatch.setattr("cdc_pipeline.run.capture.capture.division", lambda *_, **__: EVERYTHING)
    with killed_at("after_record", 2):
        capture(apart.config, cursors=apart.cursors)
    report = capture(apart.config, cursors=apart.cursors)
    assert report.parallel is not None
    assert not [why for why in report.parallel.one_after_the_other if "batch.decode" in why]
    names = apart.last_cut().tables
    assert names.keys() == alone.last_cut().tables.keys()
    for name in names:
        delta = newest_rows(apart.paths.table(name))
        assert comparable(delta) == comparable(alone.rows(name)), name


@pytest.mark.spark
@pytest.mark.whole
def test_executors_are_asked_before_they_are_trusted(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = LakePaths(tmp_path, "shop")
    assert executor_refusal(spark, paths) == ""
    assert not list(paths.staging_root.iterdir())
    with monkeypatch.context() as patched:
        elsewhere = tmp_path / "elsewhere" / "token"
        patched.setattr(executors, "_token", lambda _paths: nullcontext(elsewhere))
        assert "do not see the driver's files" in executor_refusal(spark, paths)
    monkeypatch.setattr(cdc_pipeline.version, "__version__", "0.0.0")
    assert "the driver has 0.0.0" in executor_refusal(spark, paths)
