"""A person restores the lake's state from a backup and not its tables: numbers of batches come
again, and what the tables have under them is of others. Found by `spec/commit.tla`."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import ConcurrentWriterError, LakeStateError
from cdc_pipeline.lake.paths import LakePaths, put_if_absent
from cdc_pipeline.lake.records import BatchRecord, Cut, CutTable, RecordedContent, RecordedTarget
from cdc_pipeline.lake.staged_file import StagedFile
from cdc_pipeline.lake.table_facts import put_cut
from cdc_pipeline.position.cursor import Suspension, TargetState
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.apply.merge import applied_log, apply_target
from cdc_pipeline.sink.apply.roll_back_uncut import check_taken_back
from cdc_pipeline.sink.delta.commit import transaction_version
from cdc_pipeline.sink.delta.table_checks import check_target
from tests.sink.delta.test_table_checks import APP_ID, NAME, write
from tests.support.sink_values import cursor_at, interval_of

ROWS = (StagedFile(path="_cdc/shop/staging/1/1.parquet", rows=1, size_bytes=1, sha256="0" * 64),)


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    return LakePaths(tmp_path / "lake", "shop")


def target(**rest: object) -> RecordedTarget:
    return RecordedTarget.model_validate(
        {"table": NAME, "app_id": APP_ID, "spec": TargetSpec(key=("id",)), "files": ROWS, **rest}
    )


def no_session() -> NoReturn:
    raise AssertionError("no session is needed for a refusal")


def record(number: int, *targets: RecordedTarget, applied: int = 1, **rest: object) -> BatchRecord:
    state = TargetState(table=NAME, app_id=APP_ID, table_version=0, applied_batch=applied)
    return BatchRecord.model_validate(
        {
            "source": "shop",
            "batch_number": number,
            "start": interval_of(number).start,
            "interval": interval_of(number),
            "cursor_after": cursor_at(number, targets={NAME: state}),
            "targets": targets,
            **rest,
        }
    )


def suspended_cut(number: int, *, since: int, batch: int) -> Cut:
    held = Suspension(
        batch_number=since, error="MergeError", what="failed", journal="binlog.000001", offset=4
    )
    state = TargetState(
        table=NAME, app_id=APP_ID, table_version=0, applied_batch=batch, suspended=held
    )
    return Cut(
        source="shop",
        batch_number=number,
        interval=interval_of(number),
        cursor=cursor_at(number, targets={NAME: state}),
        published_at_us=0,
        tables={NAME: CutTable(table_version=0, transaction_version=transaction_version(batch, 0))},
    )


def test_k4_commits_of_a_batch_that_left_the_target_behind_are_its_own(paths: LakePaths) -> None:
    write(paths, batch=1)
    write(paths, batch=2)
    put_if_absent(paths.batch(2), record(2, target()).model_dump_json())
    check_target(paths, suspended_cut(2, since=2, batch=1), NAME, None)
    paths.batch(2).unlink()  # only the newest records are kept
    check_target(paths, suspended_cut(2, since=2, batch=1), NAME, None)


def test_k3_a_commit_under_the_number_of_a_batch_without_the_target_is_of_others(
    paths: LakePaths,
) -> None:
    write(paths, batch=1)
    write(paths, batch=2)
    put_if_absent(paths.batch(2), record(2).model_dump_json())
    with pytest.raises(LakeStateError, match="something other than this pipeline"):
        check_target(paths, suspended_cut(2, since=2, batch=1), NAME, None)


def test_k3_a_table_that_has_lost_the_batch_of_the_cut_is_noticed(paths: LakePaths) -> None:
    """Put back to an older version and written to until the version is that of the cut, by number;
    the batch that it has is one since it was suspended."""
    write(paths, batch=2)
    put_if_absent(paths.batch(2), record(2, target()).model_dump_json())
    put_if_absent(paths.batch(3), record(3, target()).model_dump_json())
    with pytest.raises(LakeStateError, match="contradicts the last cut"):
        check_target(paths, suspended_cut(3, since=2, batch=3), NAME, None)


def test_k2_a_later_batch_in_the_table_hides_none(paths: LakePaths) -> None:
    write(paths, batch=5)
    assert applied_log(record(5, target()), target(), paths=paths)
    assert not applied_log(record(6, target()), target(), paths=paths)
    with pytest.raises(LakeStateError, match="comes after this one"):
        applied_log(record(4, target()), target(), paths=paths)


def test_k2_a_commit_under_its_number_is_not_the_restore(paths: LakePaths) -> None:
    write(paths, batch=1)
    write(paths, batch=2)
    restores = target(files=(), restores=0)
    assert not applied_log(record(3, restores), restores, paths=paths)
    with pytest.raises(LakeStateError, match="comes after this one"):
        applied_log(record(2, restores), restores, paths=paths)


def test_k3_a_restore_under_its_number_is_one_to_its_version_and_the_newest_change(
    paths: LakePaths,
) -> None:
    """The lake's state was put back to before another repair, whose number comes again."""
    to_1, to_0 = (target(files=(), restores=version) for version in (1, 0))
    write(paths, batch=1)
    write(paths, batch=2)
    write(paths, batch=3, restored=1)
    assert applied_log(record(3, to_1), to_1, paths=paths)
    assert not applied_log(record(3, to_0), to_0, paths=paths)
    write(paths, batch=4, restored=0)
    assert not applied_log(record(3, to_1), to_1, paths=paths)


def test_k3_what_others_wrote_after_a_batch_is_not_taken_for_it(paths: LakePaths) -> None:
    """A load is killed between its commit and its cut; no cut had the table with these contents."""
    loaded = target(
        files=(),
        content=RecordedContent(path="x", version=0, app_id="side", rows=1, seq="1", ts_us=0),
    )
    write(paths, batch=2)
    assert applied_log(record(2, loaded), loaded, paths=paths)
    write(paths)
    with pytest.raises(LakeStateError, match="something other than this pipeline"):
        applied_log(record(2, loaded), loaded, paths=paths)


def test_k4_a_run_that_has_lost_its_lease_gives_a_changelog_no_batch_twice(
    paths: LakePaths,
) -> None:
    """It commits the batch that left the target behind when another run has looked, and is about to
    apply the same changes as a batch of their own."""
    changelog = target(spec=TargetSpec(mode="changelog", key=("id",)), files=())
    catching_up = record(3, changelog, kind="catch_up")
    put_cut(paths, suspended_cut(2, since=2, batch=1))
    write(paths, batch=1)
    check_taken_back(paths, catching_up, changelog)
    write(paths, batch=2)
    config = SinkConfig(lake_path=paths.lake)
    with pytest.raises(ConcurrentWriterError, match="while it was being caught up"):
        apply_target(no_session, catching_up, changelog, paths=paths, config=config)
    # A mirror with a key has each row once, whatever comes twice.
    check_taken_back(paths, catching_up, target())
