from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.long_operations import operations_of
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import check_reachable, storage_of
from cdc_pipeline.lake.storage.storage_settings import spark_storage
from cdc_pipeline.operations.doctor.context import Check, Context
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.operations.doctor.local import jars_of
from cdc_pipeline.operations.plan_text import operation_line
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.durable.retention import differing_properties
from cdc_pipeline.sink.probe import SCRATCH_PREFIX, file_system, probe_lake, probe_spark
from cdc_pipeline.text.wording import duration, listed, size

# A batch is staged, then merged: its files exist twice for a while, beside those that the tables
# replace.
_BATCHES: Final = 4


def _reachable(context: Context) -> Iterator[Verdict]:
    check_reachable(context.paths.lake)
    # whatever can be read is examined, whether it can be written or not
    context.lake_is_open = True
    yield ok(f"{context.paths.lake} is readable, or new")


def _usable(context: Context) -> Iterator[Verdict]:
    context.sink  # noqa: B018  (the lake can be read)
    seconds = probe_lake(context.paths)
    yield ok(f"conditional put, lock and remove work ({seconds * 1000:.0f} ms)")


def _disk(context: Context) -> Iterator[Verdict]:
    lake = context.paths.lake
    if is_object(lake):
        return
    disk, batch = file_system(lake), context.config.batch.merge_staged_bytes
    if disk.free_bytes < _BATCHES * batch:
        verdict = error if disk.free_bytes < batch else warning
        yield verdict(
            "the lake's disk has too little room for the files of a batch",
            expected=f"{size(_BATCHES * batch)} free ({_BATCHES} times batch.merge_staged_bytes)",
            got=f"{size(disk.free_bytes)} of {size(disk.total_bytes)}",
            next_step=f"free disk space (cdc-pipeline maintain {context.config.name}), or batch: "
            "{merge_staged_bytes: ...}",
        )
    else:
        kind = disk.kind or "unknown kind"
        yield ok(f"{size(disk.free_bytes)} of {size(disk.total_bytes)} are free ({kind})")
    if disk.is_remote:
        yield warning(
            "the lake is on a network file system, which must support locks (flock) and hard "
            "links across machines",
            expected="a disk of this machine, or an object store",
            got=disk.kind,
            next_step="sink: {lake_path: ...} on a local disk or s3a://...; or run this source on "
            "one machine only",
        )
    if disk.in_memory:
        yield warning(
            "the lake is in memory: it is lost when the machine stops",
            expected="a disk",
            got=disk.kind,
            next_step="sink: {lake_path: ...} on a disk",
        )
    if disk.in_container:
        yield note(
            "the lake may be in a layer of a container and would be lost with it",
            expected="a volume",
            got=disk.kind,
            next_step="mount a volume at the lake's folder",
        )


def _store(context: Context) -> Iterator[Verdict]:
    lake = context.paths.lake
    if not is_object(lake):
        return
    config, spark = lake.storage, context.config.sink.spark
    if (config.endpoint or "").startswith("http://") and config.secrets:
        yield warning(
            "credentials and rows go to the object store unencrypted",
            expected="https://",
            got=str(config.endpoint),
            next_step="sink: {storage: {endpoint: https://...}}",
        )
    if lake.scheme == "s3a" and config.endpoint is None and config.region is None:
        yield note(
            "no region is set: each library asks the machine for it",
            expected="sink.storage.region",
            next_step="sink: {storage: {region: ...}}",
        )
    if spark.session is None:
        yield jars_of(spark_storage(lake).jar_set)
    named = [name for name in spark.settings if name.startswith("spark.delta.logStore.")]
    is_own = lake.scheme == "s3a" and spark.session is None
    chosen = "of conditional puts" if is_own else "chosen by Delta"
    by = f"by {listed(named)}" if named else chosen
    yield ok(f"{lake.scheme}: lease of {config.lease_s:g} s, log store {by}")


def _left_behind(context: Context) -> Iterator[Verdict]:
    for operation in operations_of(context.config, context.cut):
        text = f"a long operation is not finished: {operation_line(operation)}"
        if operation.is_running:
            yield note(text)
            continue
        age = duration(context.now_s - operation.started_at_us / 1e6)
        yield warning(
            text, got="" if operation.damaged else f"started {age} ago", next_step=operation.command
        )
    names = storage_of(context.paths.state).names(context.paths.state)
    scratch = sorted(name for name in names if name.startswith(SCRATCH_PREFIX))
    if scratch:
        yield note(
            "scratch folders of killed examinations are left",
            got=listed(scratch),
            next_step=f"rm -r in {context.paths.state}",
        )


def _retention(context: Context) -> Iterator[Verdict]:
    sink, differing = context.config.sink, []
    kept = duration(sink.cut_retention.total_seconds())
    for name in sorted(context.cut.tables) if context.cut is not None else ():
        with suppress(LakeStateError):  # the check of targets says so
            log = read_table_log(context.paths.table(name))
            if log is not None and differing_properties(sink, log.properties):
                differing.append(name)
    if differing:
        yield note(
            f"tables have another retention than sink.cut_retention sets ({kept})",
            got=listed(differing),
            next_step=f"cdc-pipeline maintain {context.config.name}",
        )
    else:
        yield ok(f"cuts stay readable for {kept}")


def _upkeep(context: Context) -> Iterator[Verdict]:
    maintenance = context.config.maintenance
    if maintenance is None or maintenance.cron is None:
        yield note(
            "nothing compacts and vacuums the tables automatically",
            expected="maintenance: {cron: ..., enabled: true}",
            got="no schedule",
            next_step=f"run cdc-pipeline maintain {context.config.name} from time to time, or "
            "add that section",
        )
    elif not maintenance.enabled:
        yield note(
            "the maintenance schedule is off",
            next_step="maintenance: {enabled: true}, or switch it on in Dagster's UI",
        )
    else:
        yield ok(f"tables are compacted and vacuumed on a schedule ({maintenance.cron})")


def _spark(context: Context) -> Iterator[Verdict]:
    probe = probe_spark(context.config.sink, context.paths)
    versions = ", ".join(f"{name} {version}" for name, version in probe.versions.items())
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in probe.seconds.items())
    yield ok(f"{versions}: a scratch table was written and read ({seconds})")


CHECKS: Final = (
    Check("lake", "lake", _reachable, opens=True),
    Check("lake", "usable", _usable),
    Check("lake", "disk", _disk),
    Check("lake", "store", _store),
    Check("lake", "left behind", _left_behind),
    Check("lake", "cut retention", _retention),
    Check("lake", "maintenance", _upkeep),
)
SPARK_CHECKS: Final = (Check("lake", "Spark", _spark),)
