from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.storage.lock import lock_holder
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import check_reachable, storage_of
from cdc_pipeline.lake.storage.storage_settings import spark_storage
from cdc_pipeline.operations.doctor.context import Context, checks
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.operations.doctor.local import not_complete
from cdc_pipeline.sink.delta.log import read_table_log
from cdc_pipeline.sink.durable.retention import differing_properties
from cdc_pipeline.sink.probe import SCRATCH_PREFIX, file_system, probe_lake, probe_spark
from cdc_pipeline.text.wording import duration, listed, size

# A batch is staged, then merged: its files exist twice for a while, beside those that the tables
# replace.
_BATCHES: Final = 4
_MAGIC_FLAG: Final = "spark.hadoop.fs.s3a.performance.flags"


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
    disk = file_system(lake)
    batch = context.config.batch.merge_staged_bytes
    wanted = _BATCHES * batch
    if disk.free_bytes < wanted:
        verdict = error if disk.free_bytes < batch else warning
        yield verdict(
            "the lake's disk has too little room for the files of a batch",
            expected=f"{size(wanted)} free ({_BATCHES} times batch.merge_staged_bytes)",
            got=f"{size(disk.free_bytes)} of {size(disk.total_bytes)}",
            mend=f"free disk space (cdc-pipeline maintain {context.config.name}), or batch: "
            f"{{merge_staged_bytes: ...}}",
        )
    else:
        yield ok(
            f"{size(disk.free_bytes)} of {size(disk.total_bytes)} are free "
            f"({disk.kind or 'unknown kind'})"
        )
    if disk.is_remote:
        yield warning(
            "the lake is on a network file system, which must support locks (flock) and hard "
            "links across machines",
            expected="a disk of this machine, or an object store",
            got=disk.kind,
            mend="sink: {lake_path: ...} on a local disk or s3a://...; or run this source on "
            "one machine only",
        )
    if disk.in_memory:
        yield warning(
            "the lake is in memory: it is lost when the machine stops",
            expected="a disk",
            got=disk.kind,
            mend="sink: {lake_path: ...} on a disk",
        )
    if disk.in_container:
        yield note(
            "the lake may be in a layer of a container and would be lost with it",
            expected="a volume",
            got=disk.kind,
            mend="mount a volume at the lake's folder",
        )


def _store(context: Context) -> Iterator[Verdict]:
    lake = context.paths.lake
    if not is_object(lake):
        return
    config, spark = lake.storage, context.config.sink.spark.settings
    if (config.endpoint or "").startswith("http://") and config.secrets:
        yield warning(
            "credentials and rows go to the object store unencrypted",
            expected="https://",
            got=str(config.endpoint),
            mend="sink: {storage: {endpoint: https://...}}",
        )
    if lake.scheme == "s3a" and "create" in spark.get(_MAGIC_FLAG, ""):
        yield error(
            "Hadoop is told not to check whether a file exists, a check that Delta's log relies on",
            expected=f"{_MAGIC_FLAG} without create",
            got=spark[_MAGIC_FLAG],
            mend=f"remove create from sink.spark.settings: {_MAGIC_FLAG}",
        )
    if lake.scheme == "s3a" and config.endpoint is None and config.region is None:
        yield note(
            "no region is set: each library asks the machine for it",
            expected="sink.storage.region",
            mend="sink: {storage: {region: ...}}",
        )
    if context.config.sink.spark.session is None:
        yield from not_complete(spark_storage(lake).jar_set)
    named = [name for name in spark if name.startswith("spark.delta.logStore.")]
    is_own = lake.scheme == "s3a" and context.config.sink.spark.session is None
    chosen = "of conditional puts" if is_own else "chosen by Delta"
    yield ok(
        f"{lake.scheme}: lease of {config.lease_s:g} s, log store "
        + (f"by {listed(named)}" if named else chosen)
    )


def _left_behind(context: Context) -> Iterator[Verdict]:
    state = context.paths.state
    for folder, operation in context.open_operations():
        tables = listed(list(operation.sources))
        holder = lock_holder(folder.paths.state / "operation.lock")
        if holder:
            yield note(f"a {operation.kind} of {tables} is under way", got=holder)
            continue
        age_s = context.now_s - operation.started_at_us / 1e6
        yield warning(
            f"a {operation.kind} of {tables} was started {duration(age_s)} ago and nothing is "
            "working on it; running it again continues it",
            got=operation.operation_id,
            mend=operation.command,
        )
    verbs = storage_of(state)
    scratch = sorted(name for name in verbs.names(state) if name.startswith(SCRATCH_PREFIX))
    if scratch:
        yield note(
            "scratch folders of killed examinations are left",
            got=listed(scratch),
            mend=f"rm -r in {state}",
        )


def _retention(context: Context) -> Iterator[Verdict]:
    cut, sink = context.cut, context.config.sink
    differing = []
    for name in sorted(cut.tables) if cut is not None else ():
        try:
            log = read_table_log(context.paths.table(name))
        except LakeStateError:  # the check of targets says so
            continue
        if log is not None and differing_properties(sink, log.properties):
            differing.append(name)
    kept = duration(sink.cut_retention.total_seconds())
    if differing:
        yield note(
            f"tables have another retention than sink.cut_retention sets ({kept})",
            got=listed(differing),
            mend=f"cdc-pipeline maintain {context.config.name}",
        )
    elif cut is not None:
        yield ok(f"cuts stay readable for {kept}")


def _upkeep(context: Context) -> Iterator[Verdict]:
    maintenance = context.config.maintenance
    if maintenance is None or maintenance.cron is None:
        yield note(
            "nothing compacts and vacuums the tables automatically",
            expected="maintenance: {cron: ..., enabled: true}",
            got="no schedule",
            mend=f"run cdc-pipeline maintain {context.config.name} from time to time, or "
            "add that section",
        )
    elif not maintenance.enabled:
        yield note(
            "the maintenance schedule is off",
            mend="maintenance: {enabled: true}, or switch it on in Dagster's UI",
        )
    else:
        yield ok(f"tables are compacted and vacuumed on a schedule ({maintenance.cron})")


def _spark(context: Context) -> Iterator[Verdict]:
    probe = probe_spark(context.config.sink, context.paths)
    versions = ", ".join(f"{name} {version}" for name, version in probe.versions.items())
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in probe.seconds.items())
    yield ok(f"{versions}: a scratch table was written and read ({seconds})")


CHECKS: Final = (
    *checks("lake", opens=True, lake=_reachable),
    *checks(
        "lake",
        usable=_usable,
        disk=_disk,
        store=_store,
        left_behind=_left_behind,
        cut_retention=_retention,
        maintenance=_upkeep,
    ),
)
SPARK_CHECKS: Final = checks("lake", Spark=_spark)
