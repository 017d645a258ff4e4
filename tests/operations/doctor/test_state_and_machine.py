"""What the pipeline remembers, its lake, this machine, and sources that are archives."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import DamagedJournalError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import QuarantineCount
from cdc_pipeline.lake.run_notes import dump_error_file
from cdc_pipeline.lake.storage.lock import lock_holder, writer_lock
from cdc_pipeline.position.cursor import CursorEntry, CursorState, MemoryCursorStore, Suspension
from cdc_pipeline.position.dump_errors import DumpErrors
from cdc_pipeline.sink.probe import SCRATCH_PREFIX
from cdc_pipeline.text.wording import duration, size
from tests.operations.doctor.helpers import diagnosis, is_fine, only, pipeline, troubles
from tests.support.fake_capture import cursor, cut, write_cut

SHOP = Path(__file__).resolve().parents[3] / "cdc_pipeline" / "demo" / "shop" / "journals"


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHOP, tmp_path / "journals"))


def _config(folder: Path, **sections: Any) -> PipelineConfig:
    return pipeline({"kind": "archive", "directory": folder / "journals"}, folder, **sections)


# -- state -----------------------------------------------------------------------------------------


def test_k3_k4_what_a_source_remembers_is_examined(journals: Path, tmp_path: Path) -> None:
    config = _config(tmp_path)
    held = Suspension(
        batch_number=2, error="SchemaError", what="no", journal="binlog.000003", offset=4
    )
    made = cut(batch=2, tables={"shop.orders": 2, "shop.items": 1})
    targets = dict(made.cursor.targets)
    targets["shop.items"] = targets["shop.items"].model_copy(update={"suspended": held})
    after = made.cursor.model_copy(update={"targets": targets})
    quarantine = {"shop.orders": QuarantineCount(rows=3, gone=0)}
    write_cut(
        tmp_path / "lake", made.model_copy(update={"cursor": after, "quarantine": quarantine})
    )
    dump_error_file(LakePaths.of(config)).write(
        DumpErrors().after(DamagedJournalError("a bad checksum"))
    )
    found = diagnosis(config, areas=["state"])
    assert [one.what.partition(":")[0] for one in troubles(found, "cursor")] == [
        "the cursor and the last cut differ; the next run repairs that first",
        "the log is needed from binlog.000003",
    ]
    # no Delta table is there
    assert [one.severity for one in troubles(found, "targets")] == ["error", "error"]
    suspended = only(found, "suspended")
    assert suspended.severity == "error"
    assert "shop.items" in suspended.what
    assert "each run tries to catch it up" in suspended.next_step
    assert "`cdc-pipeline snapshot shop --table shop.items`" in suspended.next_step
    assert only(found, "quarantine").next_step.startswith("cdc-pipeline quarantine list shop")
    assert only(found, "dump errors").got == "a bad checksum"
    assert is_fine(found, "lock")
    ahead = diagnosis(config, cursor=cursor(batch=5), areas=["state"])
    assert only(ahead, "cursor").severity == "error"
    assert "the cursor" in only(ahead, "not examined").what


def test_k16_who_holds_the_lock_is_told_without_taking_it(journals: Path, tmp_path: Path) -> None:
    config = _config(tmp_path)
    path = LakePaths(tmp_path / "lake", "shop").lock
    with writer_lock(path):
        found = only(diagnosis(config, areas=["state"]), "lock")
        assert found.severity == "note"
        assert f"process {os.getpid()}" in found.got
    assert lock_holder(path) == ""
    assert is_fine(diagnosis(config, areas=["state"]), "lock")


class _Broken(MemoryCursorStore):
    def read(self) -> CursorState | None:
        raise ValueError("out of order")


class _Old(MemoryCursorStore):
    """Its newest cursor is an hour old."""

    def history(self, limit: int) -> list[CursorEntry]:
        return [CursorEntry(cursor=cursor(), at_us=1, where="long ago")][:limit]


def test_a_check_that_fails_is_a_finding(journals: Path, tmp_path: Path) -> None:
    from cdc_pipeline.operations.doctor import examine

    found = examine(_config(tmp_path), cursors=_Broken(), areas=["state"])
    told = only(found, "cursor")
    assert (told.severity, told.got) == ("warning", "ValueError: out of order")
    assert is_fine(found, "lock")
    schedule = {"cron": "0 * * * *", "enabled": True}
    late = examine(
        _config(tmp_path, schedule=schedule), cursors=_Old(), every_s=3600, areas=["state"]
    )
    assert "its schedule is not being kept" in only(late, "last run").what


# -- lake and machine ------------------------------------------------------------------------------


def test_an_examination_leaves_no_trace_in_a_new_lake(journals: Path, tmp_path: Path) -> None:
    found = diagnosis(_config(tmp_path), areas=["lake"])
    assert is_fine(found, "usable")
    assert not (tmp_path / "lake").exists()
    scratch = tmp_path / "lake" / "_cdc" / "shop" / f"{SCRATCH_PREFIX}1"
    scratch.mkdir(parents=True)
    assert scratch.name in only(diagnosis(_config(tmp_path), areas=["lake"]), "left behind").got
    assert scratch.is_dir()


def test_a_lake_that_cannot_be_written_is_an_error(journals: Path, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    found = diagnosis(_config(tmp_path), areas=["lake", "state"])
    assert only(found, "usable").severity == "error"
    assert found.exit_code == 2


def test_what_this_machine_lacks_is_told(
    journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    monkeypatch.setenv("CDC_PIPELINE_CACHE", str(tmp_path / "cache"))
    sections = {
        "sink": {
            "lake_path": tmp_path / "lake",
            "spark": {"driver_memory": "900t", "master": "local[4096]"},
        },
        "store": {"disk_bytes_max": 1 << 60},
        "batch": {"merge_staged_bytes": 1 << 60},
    }
    versions = {"pyspark": "4.3.0", "rich": "13.8", "numpy": "2.5.0rc1"}
    installed = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: versions.get(name) or installed(name))
    found = diagnosis(_config(tmp_path, **sections), areas=["lake", "local"])
    packages = [one for one in found.findings if one.check == "packages"]
    assert [(one.severity, one.got) for one in packages[:2]] == [
        ("error", "4.3.0"), ("warning", "13.8"),
    ]  # fmt: skip
    assert packages[0].next_step.startswith("pip install 'pyspark<4.3,>=4.2'")
    assert "numpy 2.5.0rc1" in packages[2].what
    severities = {
        check: only(found, check).severity
        for check in ("Java", "jars", "memory", "cores", "disks", "disk")
    }
    assert severities == {
        "Java": "error", "jars": "note", "memory": "error", "cores": "note", "disks": "warning",
        "disk": "error",
    }  # fmt: skip
    assert only(found, "jars").next_step == "python -m cdc_pipeline.sink.spark"
    assert not (tmp_path / "cache").exists()


def test_of_a_session_of_the_users_neither_java_nor_jars_are_looked_for(
    journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    monkeypatch.setenv("CDC_PIPELINE_CACHE", str(tmp_path / "cache"))
    spark = {"session": "ours.spark:session"}
    config = _config(tmp_path, sink={"lake_path": tmp_path / "lake", "spark": spark})
    found = diagnosis(config, areas=["local"])
    assert is_fine(found, "Java")
    assert is_fine(found, "jars")
    assert "how much a run takes" in only(found, "memory").what


def test_object_stores_are_examined_by_their_settings(tmp_path: Path) -> None:
    from cdc_pipeline.operations.doctor import lake
    from cdc_pipeline.operations.doctor.context import Context

    sink = {
        "lake_path": "s3a://bucket/lake",
        "storage": {
            "endpoint": "http://store.example:9000",
            "access_key_id": "key-id-1",
            "secret_access_key": "hidden-1",
        },
    }
    told = list(lake._store(Context(_config(tmp_path, sink=sink), None)))
    assert told[0].severity == "warning"
    assert not any("hidden-1" in str(one) for one in told)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 seconds"), (0.4, "0.4 seconds"), (90, "90 seconds"), (900, "15 minutes"),
        (3600, "1 hour"),
     (32400, "9 hours"), (86400, "1 day"), (216000, "2.5 days"), (2592000, "30 days")],
)  # fmt: skip
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_in_words() -> None:
    assert [size(count) for count in (0, 1023, 1536, 5 << 30)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "5.0 GiB",
    ]


# -- archives --------------------------------------------------------------------------------------


def test_a_good_archive_is_fine(journals: Path, tmp_path: Path) -> None:
    found = diagnosis(_config(tmp_path))
    for check in ("journals", "end", "GTIDs", "plan"):
        assert is_fine(found, check), troubles(found, check)
    assert found.with_severity("error") == ()


def test_gaps_damage_and_absence_of_an_archive_are_told(journals: Path, tmp_path: Path) -> None:
    files = sorted(file for file in journals.iterdir() if file.suffix[1:].isdigit())
    assert len(files) >= 2
    moved = files[0].with_suffix(f".{int(files[-1].suffix[1:]) + 2:06d}")
    shutil.copy(files[-1], moved)
    gap = only(diagnosis(_config(tmp_path), areas=["server"]), "journals")
    assert gap.severity == "warning"
    moved.unlink()
    whole = files[-1].read_bytes()
    files[-1].write_bytes(whole[: len(whole) * 2 // 3])
    assert only(diagnosis(_config(tmp_path), areas=["server"]), "end").severity == "error"
    for name, severity in ((files[0].name, "ok"), ("binlog.000099", "error")):
        at = cursor(batch=0, offset=4).model_copy(update={"journal": name})
        found = diagnosis(_config(tmp_path), areas=["retention"], cursor=at)
        assert [one.severity for one in found.findings if one.check == "needed"] == [severity]
    shutil.rmtree(journals)
    absent = diagnosis(_config(tmp_path))
    assert only(absent, "journals").severity == "error"
    assert is_fine(absent, "Python")
