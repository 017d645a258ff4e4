"""Mistakes about folders, the lake, Java, Spark and the object store, and what a newcomer is told
(tests/golden/mistakes/README.md).

Each is made for real: on this machine's disk, with its Java, and against an object store's server.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_pipeline.orchestration.assets import capture_asset
from tests.support.memory_shop import archive_at
from tests.support.object_store import Store, running_store
from tests.support.object_store_server import ACCESS_KEY, READ_KEY, SECRET
from tests.support.project import Project
from tests.support.told import Told

# A folder that not even root may write, with what systems say of it.
READ_ONLY = "/sys"


class Shop:
    def __init__(self, project: Project) -> None:
        self.project = project
        archive_at(project.root / "journals")

    def write(
        self,
        *,
        directory: str = "../journals",
        lake: str = "../lake",
        include: str = "shop.pair",
        sink: str = "",
        more: str = "",
    ) -> None:
        (self.project.jobs / "shop.yaml").write_text(
            f"source: {{kind: archive, directory: {directory}}}\n"
            f"tables: {{include: [{include}]}}\n"
            f"sink:\n  lake_path: {lake}\n{sink}{more}"
        )


@pytest.fixture
def shop(project: Project, told: Told, monkeypatch: pytest.MonkeyPatch) -> Shop:
    # `told` makes the project the working directory, where Dagster's home is found.
    return Shop(project)


def test_a_mistake_in_the_archives_directory(told: Told, shop: Shop) -> None:
    shop.write(directory="journals")
    for command in ("plan", "run"):
        told.run(command, "shop", exit_code=1)
    told.then("mkdir jobs/journals")
    (folder := shop.project.jobs / "journals").mkdir()
    told.run("plan", "shop", exit_code=1)
    told.then("copy a text into it, as binlog.000001")
    (folder / "binlog.000001").write_text("hello\n")
    told.run("plan", "shop", exit_code=1)
    told.then("name the right directory")
    shop.write()
    told.works("plan", "shop")
    told.check("archive-directory")


def test_a_mistake_in_the_lakes_folder(told: Told, shop: Shop) -> None:
    (shop.project.root / "file").write_text("no folder\n")
    shop.write(lake="../file", more="store: {directory: ../file}\n")
    told.run("validate", exit_code=2)
    told.run("run", "shop", exit_code=2)
    told.then("name other folders")
    shop.write()
    told.run("validate", exit_code=0)
    told.check("lake-is-a-file")


def _cannot_write(told: Told) -> None:
    """Name what this system says when it refuses to write below `READ_ONLY`."""
    try:
        os.mkdir(f"{READ_ONLY}/lake")
    except OSError as error:
        told.name(error.strerror, "NOT PERMITTED")
    else:
        os.rmdir(f"{READ_ONLY}/lake")
        pytest.skip(f"{READ_ONLY} can be written on this machine")


def test_a_mistake_about_permissions(told: Told, shop: Shop) -> None:
    _cannot_write(told)
    shop.write(lake=f"{READ_ONLY}/lake")
    told.run("run", "shop", exit_code=1)
    told.then("name a folder of this user, and another one for the store")
    shop.write(more=f"store: {{directory: {READ_ONLY}/store}}\n")
    told.run("run", "shop", exit_code=1)
    told.check("not-writable")


def test_a_mistake_about_java(told: Told, shop: Shop) -> None:
    shop.write()
    home = {"DAGSTER_HOME": str(shop.project.home)}
    told.run_apart("run", "shop", exit_code=1, JAVA_HOME="/nowhere", **home)
    told.run_apart("run", "shop", exit_code=1, SPARK_HOME="/nowhere", **home)
    told.name(f" DAGSTER_HOME={shop.project.home}", "")
    told.check("java")


@pytest.mark.whole
def test_a_mistake_in_sparks_master(told: Told, shop: Shop) -> None:
    shop.write(sink="  spark: {master: 'spark:/host', driver_memory: lots}\n")
    told.run("validate", exit_code=2)
    home = {"DAGSTER_HOME": str(shop.project.home)}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        told.name(taken.getsockname()[1], "CLOSED_PORT")
        shop.write(sink=f"  spark: {{master: 'spark://127.0.0.1:{taken.getsockname()[1]}'}}\n")
        told.run_apart("run", "shop", exit_code=1, **home)
    shop.write(sink="  spark: {master: yarn}\n")
    told.run_apart("run", "shop", exit_code=1, HADOOP_CONF_DIR="", YARN_CONF_DIR="", **home)
    told.name(f"DAGSTER_HOME={shop.project.home} ", "")
    told.name("HADOOP_CONF_DIR= YARN_CONF_DIR= ", "")
    told.check("spark-master")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("store")) as found:
        yield found


def _stored(store: Store, **changes: str) -> str:
    settings = {
        "endpoint": store.endpoint,
        "region": "us-east-1",
        "access_key_id": "${LAKE_KEY}",
        "secret_access_key": "${LAKE_SECRET}",
        "retry_s": "1",
        **changes,
    }
    lines = "".join(f"    {name}: {value}\n" for name, value in settings.items())
    return f"  storage:\n{lines}"


def test_a_mistake_in_the_object_stores_credentials(
    told: Told, shop: Shop, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.name(store.endpoint, "STORE")
    lake = f"s3a://{store.bucket}/lake"
    shop.write(lake=lake, sink=_stored(store))
    told.run("run", "shop", exit_code=2)
    for key in ("nobody", READ_KEY):
        told.then(f"export LAKE_KEY={key} LAKE_SECRET=...")
        monkeypatch.setenv("LAKE_KEY", key)
        monkeypatch.setenv("LAKE_SECRET", SECRET)
        told.run("run", "shop", exit_code=1)
    told.then(f"export LAKE_KEY={ACCESS_KEY}, and name a bucket that does not exist")
    monkeypatch.setenv("LAKE_KEY", ACCESS_KEY)
    shop.write(lake="s3a://nowhere/lake", sink=_stored(store))
    told.run("run", "shop", exit_code=1)
    told.then("name another endpoint")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        told.name(taken.getsockname()[1], "CLOSED_PORT")
        monkeypatch.setattr(capture_asset, "_RETRIES_MAX", 0)
        shop.write(
            lake=lake, sink=_stored(store, endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}")
        )
        told.run("run", "shop", exit_code=1)
    told.then("correct the endpoint")
    shop.write(lake=lake, sink=_stored(store))
    told.works("plan", "shop")
    told.check("object-store")


def test_a_mistake_in_a_tables_rule(told: Told, shop: Shop) -> None:
    """A key and a filter with columns that the table does not have; a key where there is none."""
    for rule in ("key: [nope]", "filter: nope > 3", "mode: changelog, key: [a]"):
        told.then(f"a rule with {rule}")
        shop.write(more=f"targets:\n- {{tables: [shop.pair], {rule}}}\n")
        told.run("run", "shop", exit_code=2)
    told.check("table-rule")


@pytest.mark.whole
@pytest.mark.spark
def test_a_mistake_about_a_lake_that_is_anothers(told: Told, shop: Shop) -> None:
    """Files of others lie where a table belongs; what the error names rebuilds the table."""
    (foreign := shop.project.lake / "shop" / "pair").mkdir(parents=True)
    (foreign / "report.csv").write_text("1,2\n")
    shop.write(sink="  spark: {master: 'local[1]'}\n")
    told.run("run", "shop", exit_code=1)
    told.then("move the folder away")
    foreign.rename(shop.project.root / "elsewhere")
    told.works("backfill", "shop", "--table", "shop.pair", "--rebuild")
    told.works("run", "shop")
    told.check("lake-of-another")


def test_a_mistake_about_dagsters_home(told: Told, shop: Shop, tmp_path: Path) -> None:
    shop.write()
    for home in ("/nowhere/dagster_home", "dagster_home"):
        told.run_apart("run", "shop", exit_code=2, DAGSTER_HOME=home)
    told.check("wrong-dagster-home")
