"""What a newcomer sees in `make dev`: the demo's job, its lineage, and after a run what it did.

Pages are looked at with a real browser; what a page draws is compared with what is expected of the
shop, and the graph is asked for by GraphQL too.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from playwright.sync_api import Locator, Page, expect

from cdc_pipeline.demo import SHOP_DIRECTORY
from tests.browser.dagit import LOCATION, Dagit

TABLES = ("customers", "order_items", "orders", "products", "stock_movements")
SERVER_UUID = json.loads((SHOP_DIRECTORY / "recording.json").read_text(encoding="utf-8"))["server"][
    "server_uuid"
]
# Few, so that the run is short, yet past the first rows of each table and before the first DDL of a
# captured table.
TRANSACTIONS = 60
JOB_PAGE = f"/locations/{LOCATION}/jobs/shop_capture"

Edge = tuple[tuple[str, ...], tuple[str, ...]]

_DRAWN = """() => ({
  nodes: [...document.querySelectorAll('foreignObject')].map(node => ({
    text: node.firstElementChild.innerText, x: node.x.baseVal.value, y: node.y.baseVal.value,
    width: node.width.baseVal.value, height: node.height.baseVal.value})),
  edges: [...document.querySelectorAll('svg path[marker-end]')].map(edge => {
    const length = edge.getTotalLength();
    const [from, to] = [edge.getPointAtLength(0), edge.getPointAtLength(length)];
    return {from: [from.x, from.y], to: [to.x, to.y]};
  })
})"""

_GRAPH = """{
  assetNodes {
    assetKey { path } dependencyKeys { path } groupName kinds jobNames opNames isExecutable isMaterializable
  }
}"""  # noqa: E501

_EVENTS = """
query Events($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) {
    ... on Asset {
      assetMaterializations {
        runId
        metadataEntries {
          label
          ... on IntMetadataEntry { intValue }
          ... on TextMetadataEntry { text }
          ... on JsonMetadataEntry { jsonString }
        }
      }
    }
  }
}
"""


def source_key(table: str) -> tuple[str, ...]:
    return ("shop", "source", "shop", table)


def table_key(table: str) -> tuple[str, ...]:
    return ("shop", "shop", table)


GROUPS = ("shop", "shop_source")
CURSOR_KEY = ("shop", "cursor")
EDGES: set[Edge] = {(source_key(table), table_key(table)) for table in TABLES} | {
    (table_key(table), CURSOR_KEY) for table in TABLES
}


def drawn_edges(page: Page) -> tuple[set[tuple[str, ...]], set[Edge]]:
    """Nodes and edges of the asset graph as they stand on the page, edges told by where their lines
    begin and end."""
    drawn = page.evaluate(_DRAWN)
    boxes = {"", *GROUPS}  # of a group: its frame and its head
    nodes = [
        (_drawn_key(node["text"]), node)
        for node in drawn["nodes"]
        if node["text"].strip() not in boxes
    ]
    edges = set()
    for edge in drawn["edges"]:
        (from_x, from_y), (to_x, to_y) = edge["from"], edge["to"]
        (begin,) = [
            k for k, n in nodes if abs(n["x"] + n["width"] - from_x) < 10 and _level(n, from_y)
        ]
        (end,) = [k for k, n in nodes if abs(n["x"] - to_x) < 10 and _level(n, to_y)]
        edges.add((begin, end))
    return {key for key, _ in nodes}, edges


def _level(node: dict[str, float], y: float) -> bool:
    return node["y"] <= y <= node["y"] + node["height"]


def _drawn_key(text: str) -> tuple[str, ...]:
    """The key of a node by its name and its kinds: source tables are of MySQL, the lake's are of
    Delta Lake."""
    name, *rest = text.splitlines()
    if "MySQL" in rest:
        return source_key(name)
    if "Delta Lake" in rest and "Spark" in rest:
        return table_key(name)
    return ("shop", name)


def test_the_job_is_listed_and_its_page_shows_the_capture_step(dagit: Dagit, page: Page) -> None:
    page.goto(dagit.url + "/jobs")
    page.get_by_role("link", name="shop_capture").click()
    expect(page).to_have_url(dagit.url + JOB_PAGE)
    expect(page.get_by_text("One bounded capture of shop:")).to_be_visible()
    expect(page.get_by_text("Every hour").first).to_be_visible()
    expect(page.get_by_text("View 6 assets")).to_be_visible()
    page.get_by_text("View as Asset Graph").click()
    expect(page.locator("foreignObject", has_text="capture_shop")).to_have_count(1)
    expect(
        page.get_by_text("Captures shop up to its bound and merges it into the lake.")
    ).to_be_visible()


def test_the_launchpad_offers_the_bound_and_finds_no_mistake(dagit: Dagit, page: Page) -> None:
    page.goto(dagit.url + JOB_PAGE + "/playground")
    expect(page.get_by_text("No errors")).to_be_visible()
    expect(page.get_by_text("bound_end_of_log").first).to_be_visible()
    expect(page.get_by_role("button", name="Launch Run")).to_be_enabled()


def test_the_lineage_page_draws_source_tables_then_delta_tables_then_the_cursor(
    dagit: Dagit, page: Page
) -> None:
    page.goto(dagit.url + "/asset-groups")
    # First a box for each group; the page's address tells which are open, as after a click on them.
    expect(page.locator("foreignObject")).to_have_count(len(GROUPS))
    for group in GROUPS:
        expect(page.locator("foreignObject").get_by_text(group, exact=True)).to_be_visible()
    page.goto(
        dagit.url
        + "/asset-groups?expanded="
        + quote(",".join(f"global@global:{group}" for group in GROUPS))
    )
    expect(page.locator("svg path[marker-end]")).to_have_count(len(EDGES))
    expect(page.locator("foreignObject", has_text="Delta Lake")).to_have_count(len(TABLES))
    expect(page.locator("foreignObject", has_text="MySQL")).to_have_count(len(TABLES))
    nodes, edges = drawn_edges(page)
    assert nodes == {key for edge in EDGES for key in edge}
    assert edges == EDGES


def test_the_asset_graph_has_the_same_lineage(dagit: Dagit) -> None:
    nodes = {tuple(node["assetKey"]["path"]): node for node in dagit.graphql(_GRAPH)["assetNodes"]}
    edges = {(tuple(d["path"]), key) for key, node in nodes.items() for d in node["dependencyKeys"]}
    assert edges == EDGES
    assert set(nodes) == {key for edge in EDGES for key in edge}
    for table in TABLES:
        upstream, lake = nodes[source_key(table)], nodes[table_key(table)]
        assert upstream["kinds"] == ["mysql"]
        assert not upstream["isExecutable"]
        assert upstream["groupName"] == "shop_source"
        assert sorted(lake["kinds"]) == ["deltalake", "spark"]
        assert lake["isMaterializable"]
        assert lake["opNames"] == ["capture_shop"]
        assert "shop_capture" in lake["jobNames"]
    assert nodes[CURSOR_KEY]["opNames"] == ["capture_shop"]
    assert (
        {nodes[table_key(table)]["groupName"] for table in TABLES}
        == {"shop"}
        == {nodes[CURSOR_KEY]["groupName"]}
    )


@pytest.fixture(scope="module")
def finished_run(dagit: Dagit) -> str:
    """A short run, launched as the launchpad does; its id."""
    return dagit.launch(
        job="shop_capture", step="capture_shop", config={"bound_transactions": TRANSACTIONS}
    )


def events(dagit: Dagit, key: tuple[str, ...]) -> list[dict[str, Any]]:
    """Metadata of the asset's materializations, oldest first."""
    found = dagit.graphql(_EVENTS, {"key": {"path": list(key)}})["assetOrError"][
        "assetMaterializations"
    ]
    return [
        {
            entry["label"]: next(
                (entry[k] for k in ("intValue", "text", "jsonString") if k in entry), None
            )
            for entry in event["metadataEntries"]
        }
        for event in reversed(found)
    ]


def delta_rows(table: DeltaTable) -> int:
    """Rows of a table without deletion vectors, by the counts that Spark wrote into its log."""
    return sum(pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist())


def metadata_value(page: Page, name: str) -> Locator:
    """The cell that holds the value of metadata `name` on an asset's page."""
    row = page.get_by_role("row").filter(has=page.get_by_role("cell", name=name, exact=True))
    return row.get_by_role("cell").last


@pytest.mark.spark
@pytest.mark.usefixtures("finished_run")
def test_after_a_run_a_table_page_shows_its_rows_and_delta_version(
    dagit: Dagit, page: Page
) -> None:
    for table in TABLES:
        (event,) = events(dagit, table_key(table))
        lake_table = DeltaTable(dagit.project / "lake" / "shop" / table)
        assert int(event["delta_version"]) == lake_table.version()
        assert event["rows_inserted"] - event["rows_deleted"] == delta_rows(lake_table) > 0
        assert event["dagster/row_count"] == delta_rows(lake_table)
    (orders,) = events(dagit, table_key("orders"))
    page.goto(dagit.url + "/assets/shop/shop/orders")
    for name in ("rows_inserted", "rows_updated", "rows_deleted", "delta_version", "batch_number"):
        expect(metadata_value(page, name)).to_have_text(str(orders[name]))
    for column in (
        "id",
        "customer_id",
        "status",
        "total",
        "ordered_at",
        "_cdc_op",
        "_cdc_seq",
        "_cdc_ts",
    ):
        expect(page.get_by_role("cell", name=column, exact=True)).to_be_visible()


@pytest.mark.spark
def test_after_a_run_the_cursor_page_shows_its_position(
    dagit: Dagit, page: Page, finished_run: str
) -> None:
    (event,) = events(dagit, CURSOR_KEY)
    journal, offset = event["position"].rsplit(":", 1)
    size_bytes = (SHOP_DIRECTORY / "journals" / journal).stat().st_size
    assert 4 < int(offset) <= size_bytes
    # The shop's server numbered its transactions from 1 on.
    gtid_set = f"{SERVER_UUID}:1-{TRANSACTIONS}"
    assert int(event["transactions_seen"]) == TRANSACTIONS
    versions = {
        f"shop.{table}": int(events(dagit, table_key(table))[-1]["delta_version"])
        for table in TABLES
    }
    assert json.loads(event["delta_versions"]) == versions
    page.goto(dagit.url + "/assets/shop/cursor")
    expect(metadata_value(page, "position")).to_have_text(event["position"])
    expect(metadata_value(page, "gtid_set")).to_have_text(gtid_set)
    page.goto(f"{dagit.url}/runs/{finished_run}")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    expect(page.get_by_text("capture_shop").first).to_be_visible()
