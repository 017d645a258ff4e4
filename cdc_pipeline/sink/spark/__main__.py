"""``python -m cdc_pipeline.sink.spark [--with s3|azure|gcs]``: fetch Spark's jars, then make the
archive of classes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.sink.spark.class_archive import DUMP_VARIABLE, archive_path
from cdc_pipeline.sink.spark.jars import DELTA, JAR_SETS, fetch_jars, jar_folder
from cdc_pipeline.sink.spark.session import SparkProvider

_TRAIN_TIMEOUT_S: Final = 600


def make_archive() -> Path | None:
    """Made by a separate session if it does not exist; None if this Java cannot make one."""
    archive = archive_path()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=archive.parent) as work:
        new_archive = Path(work) / archive.name
        subprocess.run(  # noqa: S603 - this program
            [sys.executable, "-m", "cdc_pipeline.sink.spark", "--train", work],
            env={**os.environ, DUMP_VARIABLE: str(new_archive)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TRAIN_TIMEOUT_S,
            check=False,
        )
        if not new_archive.is_file():
            return None
        new_archive.replace(archive)
    return archive


def _train(folder: Path) -> None:
    """Do what a run does once: classes that are loaded are archived at exit."""
    from pyspark import SparkContext

    provider = SparkProvider(SparkConfig())
    session: Any = provider.session()
    table = f"delta.`{folder / 'table'}`"
    columns = (
        "id BIGINT, name STRING, amount DECIMAL(12,2), at TIMESTAMP, day DATE, "
        "_cdc_seq DECIMAL(38,0)"
    )
    session.sql(
        f"CREATE TABLE {table} ({columns}) USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true')"
    )
    rows = (
        "SELECT id, concat('n', id) AS name, CAST(id AS DECIMAL(12,2)) AS amount, "
        "current_timestamp() AS at, current_date() AS day, CAST(id AS DECIMAL(38,0)) AS "
        "_cdc_seq FROM range({})"
    )
    for number, count in enumerate((100, 300)):
        staged = str(folder / f"staged-{number}")
        session.sql(rows.format(count)).write.parquet(staged)
        session.read.parquet(staged).createOrReplaceTempView("staged")
        session.sql(
            f"MERGE INTO {table} t USING staged s ON t.id = s.id WHEN MATCHED AND s.id % 7 = 0 "
            "THEN DELETE WHEN MATCHED AND t._cdc_seq <= s._cdc_seq THEN UPDATE SET * WHEN NOT "
            "MATCHED THEN INSERT *"
        ).collect()
    session.sql(f"ALTER TABLE {table} ADD COLUMN more INT").collect()
    session.sql(f"UPDATE {table} SET more = 1").collect()  # noqa: S608 - a folder of our own
    session.sql(f"SELECT count(*) FROM {table}").toArrow()  # noqa: S608
    context: Any = SparkContext
    process = context._gateway.proc
    provider.stop()
    process.stdin.close()  # Java writes the archive when it exits
    process.wait(_TRAIN_TIMEOUT_S)


def _main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cdc_pipeline.sink.spark", description="Download the jars for Spark."
    )
    parser.add_argument(
        "--with",
        dest="sets",
        action="append",
        default=[],
        choices=sorted(set(JAR_SETS) - {DELTA}),
        help="also download those for lakes in this kind of object store",
    )
    parser.add_argument("--train", help=argparse.SUPPRESS)
    if folder := parser.parse_args(arguments).train:
        _train(Path(folder))
        return 0
    for name in (DELTA, *parser.parse_args(arguments).sets):
        wanted = JAR_SETS[name]
        print(f"{wanted.title} ({wanted.coordinates}) in {jar_folder(name)} ...", flush=True)  # noqa: T201 - a command
        try:
            jars = fetch_jars(name)
        except CdcError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        size_mib = sum(jar.stat().st_size for jar in jars) / (1 << 20)
        print(f"{len(jars)} jars, {size_mib:.0f} MiB: complete, checksums right", flush=True)  # noqa: T201
    said = (
        "archived for a quick start"
        if make_archive()
        else "not archived, because this Java cannot; sessions start more slowly"
    )
    print(f"Spark's classes: {said}")  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
