"""A load of tables that a user starts in Dagster: a backfill over table partitions, through
Dagster's own GraphQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from playwright.sync_api import Page, expect

from tests.browser.dagit import LOCATION, RUN_DEADLINE_S, Dagit
from tests.servers import Server
from tests.support.captures import live

pytestmark = [pytest.mark.spark, pytest.mark.mysql]

SOURCE = "bank"

_BACKFILL = """
mutation Backfill($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
_STATUS = """
query Status($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    __typename
    ... on PartitionBackfill { status error { message } runs(limit: 10) { runId status } }
    ... on PythonError { message }
  }
}
"""
_RELOAD = """
mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename
    ... on WorkspaceLocationEntry { loadStatus locationOrLoadError { __typename ... on PythonError { message } } }
  }
}
"""  # noqa: E501
_ASSET = """
query Asset($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      dependencyKeys { path }
      partitionKeys
      assetMaterializations {
        runId partition
        metadataEntries { label ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } }
      }
    }
  }
}
"""  # noqa: E501

_CHECK = """
query Check($key: AssetKeyInput!, $name: String!) {
  assetCheckExecutions(assetKey: $key, checkName: $name, limit: 1) {
    status evaluation { success severity description }
  }
}
"""


@contextmanager
def source_of(dagit: Dagit, section: dict[str, Any], tables: list[str]) -> Iterator[None]:
    file = dagit.project / "jobs" / f"{SOURCE}.yaml"
    config = {
        "source": section,
        "tables": {"include": tables},
        "start": "latest",
        "sink": {"lake_path": "../lake"},
    }
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    try:
        reload_location(dagit)
        yield
    finally:
        file.unlink()
        reload_location(dagit)


def reload_location(dagit: Dagit) -> None:
    told = dagit.graphql(_RELOAD, {"name": LOCATION})["reloadRepositoryLocation"]
    assert told.get("loadStatus") == "LOADED", told
    assert told["locationOrLoadError"]["__typename"] == "RepositoryLocation", told


def asset(dagit: Dagit, *path: str) -> dict[str, Any]:
    found: dict[str, Any] = dagit.graphql(_ASSET, {"key": {"path": [SOURCE, *path]}})[
        "assetNodeOrError"
    ]
    return found


def backfilled(dagit: Dagit, partitions: list[str]) -> list[str]:
    params = {"assetSelection": [{"path": [SOURCE, "snapshot"]}], "partitionNames": partitions}
    answer = dagit.graphql(_BACKFILL, {"params": params})["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    deadline = time.monotonic() + RUN_DEADLINE_S
    while True:
        told = dagit.graphql(_STATUS, {"id": answer["backfillId"]})["partitionBackfillOrError"]
        assert told["__typename"] == "PartitionBackfill", told
        assert told["status"] not in ("FAILED", "COMPLETED_FAILED", "CANCELED"), told
        if told["status"] in ("COMPLETED_SUCCESS", "COMPLETED"):
            return [run["runId"] for run in told["runs"]]
        assert time.monotonic() < deadline, told
        dagit.pause()


@pytest.mark.nightly
def test_k17_a_backfill_over_table_partitions_loads_tables_shows_in_lineage_and_is_proved_by_checks(
    dagit: Dagit, page: Page, mysql_server: Server, mysql_database: str
) -> None:
    database, tables = mysql_database, [f"{mysql_database}.account", f"{mysql_database}.label"]
    mysql_server.execute(
        f"CREATE TABLE `{database}`.account (id INT PRIMARY KEY, amount DECIMAL(10,2))"
    )
    mysql_server.execute(
        f"INSERT INTO `{database}`.account VALUES (1, 1.50), (2, -2.25), (3, NULL)"
    )
    mysql_server.execute(
        f"CREATE TABLE `{database}`.label (code VARCHAR(20) PRIMARY KEY, text TEXT)"
    )
    mysql_server.execute(f"INSERT INTO `{database}`.label VALUES ('a', 'first'), ('b', 'second')")
    section = live(mysql_server)
    with source_of(dagit, section, tables):
        assert asset(dagit, "snapshot")["partitionKeys"] == tables

        (run_id,) = backfilled(dagit, tables)  # both tables in one run

        snapshot = asset(dagit, "snapshot")
        sources = {(SOURCE, "source", *table.split(".")) for table in tables}
        assert {tuple(key["path"]) for key in snapshot["dependencyKeys"]} == sources
        loaded = {event["partition"]: entries(event) for event in snapshot["assetMaterializations"]}
        assert {name: values["rows"] for name, values in loaded.items()} == {
            tables[0]: 3,
            tables[1]: 2,
        }
        for table in tables:
            events = asset(dagit, *table.split("."))["assetMaterializations"]
            assert [(event["runId"], event["partition"]) for event in events] == [(run_id, None)], (
                table
            )
            assert entries(events[0])["dagster/row_count"] == loaded[table]["rows"]
        cursor = asset(dagit, "cursor")["assetMaterializations"]
        assert {event["runId"] for event in cursor} == {run_id}
        assert {event["partition"] for event in cursor} == {None}

        reload_location(dagit)  # the cut tells the tables' keys, and so which checks there are
        account = (SOURCE, *tables[0].split("."))
        dagit.check(
            {
                account: ["count", "checksum", "key_uniqueness"],
                (SOURCE, "cursor"): ["intervals_join", "lag"],
            }
        )
        for key, names in (
            (account, ("count", "checksum", "key_uniqueness")),
            ((SOURCE, "cursor"), ("lag",)),
        ):
            for name in names:
                asked = {"key": {"path": list(key)}, "name": name}
                (executed,) = dagit.graphql(_CHECK, asked)["assetCheckExecutions"]
                assert executed["evaluation"]["success"], executed

        page.goto(f"{dagit.url}/assets/{SOURCE}/snapshot?view=lineage&lineageScope=neighbors")
        expect(page.locator("foreignObject", has_text="snapshot")).to_have_count(1)
        expect(page.locator("foreignObject", has_text="account").first).to_be_visible()
        page.goto(f"{dagit.url}/assets/{SOURCE}/snapshot?view=partitions")
        expect(page.get_by_text(tables[0]).first).to_be_visible()


def entries(event: dict[str, Any]) -> dict[str, Any]:
    return {
        entry["label"]: entry.get("intValue", entry.get("text"))
        for entry in event["metadataEntries"]
    }
