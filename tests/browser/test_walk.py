"""A walk through everything that a person sees in Dagster, on the demo: a shop of five tables, one
of which has lost its Delta table and is suspended.

With PICTURES, a folder, each page that the documentation shows is drawn into it: see
`make record NAME=pictures`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from cdc_pipeline.demo import SHOP_DIRECTORY
from tests.browser.conftest import PAGE_DEADLINE_S
from tests.browser.dagit import LOCATION, Dagit, copy_project

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

LOST = "products"
FOLLOWING = ("customers", "order_items", "orders", "stock_movements")
TRANSACTIONS = 60
WIDTH, HEIGHT = 1280, 800
JOB_PAGE = f"/locations/{LOCATION}/jobs/shop_capture"
Picture = Callable[[Page, str], None]

_RENAMED = """([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""
_CHECKS = """
query Checks($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      assetChecksOrError { ... on AssetChecks { checks {
        name
        executionForLatestMaterialization { runId evaluation {
          success severity metadataEntries { label ... on TextMetadataEntry { text } }
        } }
      } } }
    }
  }
}
"""
# What the asset graph draws a table's colour from.
_LATEST = """
query Latest($keys: [AssetKeyInput!]!) {
  assetsLatestInfo(assetKeys: $keys) {
    latestMaterialization { runId } latestRun { id status }
  }
}
"""
_OBSERVED = """
query Observed($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) { ... on Asset { assetObservations {
    runId metadataEntries { label ... on TextMetadataEntry { text } }
  } } }
}
"""


@dataclass(frozen=True)
class Walked:
    dagit: Dagit
    first: str
    suspending: str
    idle: str
    plan: str


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    project = copy_project(tmp_path_factory.mktemp("walk") / "project")
    journals = project / "journals"
    shutil.copytree(SHOP_DIRECTORY / "journals", journals)
    job = project / "jobs" / "shop.yaml"
    shop = yaml.safe_load(job.read_text(encoding="utf-8"))
    shop["source"]["directory"] = str(journals)
    job.write_text(yaml.safe_dump(shop), encoding="utf-8")
    with Dagit(project) as started:

        def capture(wanted: str, **config: object) -> str:
            return started.launch(
                job="shop_capture", step="capture_shop", config=config, wanted=wanted
            )

        first = capture("SUCCESS", until_transactions=TRANSACTIONS)
        shutil.rmtree(project / "lake" / "shop" / LOST)
        suspending = capture("FAILURE", until="end_of_log")
        # As the schedule does.
        idle = started.launch(
            job="shop_capture",
            step="capture_shop",
            config={},
            selection=[("shop", "cursor")],
            wanted="FAILURE",
        )
        yield Walked(started, first, suspending, idle, started.run_job("shop_plan"))


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    size = {"width": WIDTH, "height": HEIGHT}
    with browser.new_context(viewport=size, timezone_id="UTC") as context:  # type: ignore[arg-type]
        context.set_default_timeout(PAGE_DEADLINE_S * 1000)
        yield context.new_page()


@pytest.fixture
def picture(walked: Walked) -> Picture:
    """Draw a page into the documentation's folder of pictures, if that is wanted: with a folder's
    name that says nothing of the machine."""
    folder = os.environ.get("PICTURES")

    def draw(page: Page, name: str) -> None:
        if folder:
            page.wait_for_load_state("networkidle")
            page.mouse.move(0, 0)
            page.evaluate(_RENAMED, [str(walked.dagit.project), "/srv/shop"])
            page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")

    return draw


def _follows(dagit: Dagit, table: str) -> dict[str, object]:
    node = dagit.graphql(_CHECKS, {"key": {"path": ["shop", "shop", table]}})["assetNodeOrError"]
    checks = {check["name"]: check for check in node["assetChecksOrError"]["checks"]}
    found: dict[str, object] = checks["follows"]["executionForLatestMaterialization"]["evaluation"]
    return found


def test_the_job_is_listed_and_its_page_shows_the_capture_step(walked: Walked, page: Page) -> None:
    page.goto(walked.dagit.url + "/jobs")
    page.get_by_role("link", name="shop_capture").click()
    expect(page).to_have_url(walked.dagit.url + JOB_PAGE)
    expect(page.get_by_text("One bounded capture of shop:")).to_be_visible()
    expect(page.get_by_text("Every hour").first).to_be_visible()
    expect(page.get_by_text("View 6 assets")).to_be_visible()


def test_the_lineage_is_drawn_from_the_source_to_the_cursor(
    walked: Walked, page: Page, picture: Picture
) -> None:
    # Large enough for Dagster to draw what each asset is and how it is.
    page.set_viewport_size({"width": 1600, "height": 1000})
    groups = quote(",".join(f"global@global:{group}" for group in ("shop", "shop_source")))
    page.goto(f"{walked.dagit.url}/asset-groups?expanded={groups}")
    expect(page.locator("svg path[marker-end]")).to_have_count(10)
    expect(page.locator("foreignObject", has_text="Delta Lake")).to_have_count(5)
    expect(page.locator("foreignObject", has_text="MySQL")).to_have_count(5)
    expect(page.locator("foreignObject", has_text="cursor")).to_have_count(1)
    expect(page.get_by_text("Loading")).to_have_count(0)
    picture(page, "lineage")


def test_a_suspended_table_fails_its_own_check_and_no_other(
    walked: Walked, page: Page, picture: Picture
) -> None:
    for table in FOLLOWING:
        assert _follows(walked.dagit, table)["success"], table
    lost = _follows(walked.dagit, LOST)
    assert (lost["success"], lost["severity"]) == (False, "ERROR")
    page.goto(f"{walked.dagit.url}/assets/shop/shop/{LOST}?view=checks&checkDetail=follows")
    command = re.compile(r"cdc-pipeline \w+ shop --table shop.products")
    expect(page.get_by_text(command).first).to_be_visible()
    expect(page.get_by_text("stands_at").first).to_be_visible()
    picture(page, "check")


def test_k35_f88_a_run_that_suspends_a_table_is_red_and_what_follows_stays_green(
    walked: Walked, page: Page
) -> None:
    page.goto(f"{walked.dagit.url}/runs/{walked.suspending}")
    expect(page.get_by_text("Failure", exact=True).first).to_be_visible()
    for *path, run, follows in (
        *(("shop", "shop", table, walked.suspending, True) for table in FOLLOWING),
        ("shop", "cursor", walked.idle, True),
        ("shop", "shop", LOST, walked.suspending, False),
    ):
        found = walked.dagit.graphql(_LATEST, {"keys": [{"path": path}]})["assetsLatestInfo"][0]
        assert found["latestRun"] == {"id": run, "status": "FAILURE"}
        assert (found["latestMaterialization"]["runId"] == run) is follows, path
    page.set_viewport_size({"width": 1600, "height": 1000})
    groups = quote(",".join(f"global@global:{group}" for group in ("shop", "shop_source")))
    page.goto(f"{walked.dagit.url}/asset-groups?expanded={groups}")
    failed = page.locator("foreignObject", has_text=re.compile("Failed|failed"))
    expect(failed).to_have_count(1)
    expect(failed).to_contain_text(LOST)


def test_a_table_page_shows_what_happened_to_it(
    walked: Walked, page: Page, picture: Picture
) -> None:
    page.goto(f"{walked.dagit.url}/assets/shop/shop/orders")
    expect(page.get_by_text("rows_inserted").first).to_be_visible()
    for name in ("rows_inserted", "delta_version", "customer_id", "_cdc_seq"):
        expect(page.get_by_role("cell", name=name, exact=True).first).to_be_visible()
    picture(page, "table")
    page.get_by_text("Plots", exact=True).first.click()
    expect(page.get_by_text("rows_inserted").first).to_be_visible()
    page.get_by_text("Plots", exact=True).first.scroll_into_view_if_needed()
    assert page.get_by_text("batch_number").count() == 0, "nobody would plot it"
    picture(page, "plots")
    page.goto(f"{walked.dagit.url}/assets/shop/shop/orders?view=events")
    expect(page.get_by_text("checked_up_to").first).to_be_visible()
    picture(page, "events")


def test_an_idle_run_left_a_sign_on_every_asset(walked: Walked) -> None:
    """The cursor, which the run selects, has a materialization."""
    keys = []
    for table in (*FOLLOWING, LOST):
        keys += [("shop", "shop", table), ("shop", "source", "shop", table)]
    for key in keys:
        found = walked.dagit.graphql(_OBSERVED, {"key": {"path": list(key)}})["assetOrError"]
        newest = found["assetObservations"][0]
        assert newest["runId"] == walked.idle, key
        labels = {entry["label"] for entry in newest["metadataEntries"]}
        assert "checked_up_to" in labels, key


def test_the_cursor_tells_where_the_next_run_begins(
    walked: Walked, page: Page, picture: Picture
) -> None:
    page.goto(f"{walked.dagit.url}/assets/shop/cursor")
    expect(page.get_by_role("cell", name="position", exact=True)).to_be_visible()
    picture(page, "cursor")


def test_the_launchpad_begins_with_an_example_of_every_field(
    walked: Walked, page: Page, picture: Picture
) -> None:
    page.goto(walked.dagit.url + JOB_PAGE + "/playground")
    expect(page.get_by_text("No errors")).to_be_visible()
    expect(page.get_by_text("unused_examples")).to_be_visible()
    expect(page.get_by_text("until_transactions")).to_be_visible()
    expect(page.get_by_role("button", name="Launch Run")).to_be_enabled()
    picture(page, "launchpad")


def test_the_runs_are_listed_with_names_for_people(
    walked: Walked, page: Page, picture: Picture
) -> None:
    page.goto(walked.dagit.url + "/runs")
    expect(page.get_by_text("shop_plan").first).to_be_visible()
    assert page.get_by_text("cdc_process").count() == 0
    picture(page, "runs")


def test_the_plan_is_read_on_its_run(walked: Walked, page: Page, picture: Picture) -> None:
    page.goto(f"{walked.dagit.url}/runs/{walked.plan}")
    page.get_by_text("[Show Markdown]").first.click()
    expect(page.get_by_text("The next capture of shop")).to_be_visible()
    picture(page, "plan")
