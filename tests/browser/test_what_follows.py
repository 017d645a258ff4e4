"""What joins a source in Dagster: the check of the rolling proof, an asset that takes the changes,
and a model of dbt over published views. They are seen where dagster-dbt, dbt-duckdb and
duckdb-extension-delta are installed, which no extra of the package asks for.

With PICTURES, a folder, the pages that the documentation shows are drawn into it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PAGE_DEADLINE_S
from tests.browser.dagit import Dagit, copy_project
from tests.servers import Server
from tests.support.captures import live

pytestmark = [pytest.mark.mysql, pytest.mark.nightly]

pytest.importorskip("dagster_dbt")
pytest.importorskip("duckdb_extensions")
_CHANGES = '''
import cdc_pipeline
import dagster as dg
from pathlib import Path
from cdc_pipeline.orchestration.definitions import build_definitions

HERE = Path(__file__).resolve().parent


@dg.asset(deps=[dg.AssetKey(["sales", "shop", "orders"])], group_name="warehouse")
def order_changes(context: dg.AssetExecutionContext) -> None:
    """The increments of the orders, each once."""
    changes = cdc_pipeline.cdc_changes(context, HERE.parent / "lake", ["shop.orders"])
    rows = changes.read("shop.orders").read_all()
    context.add_output_metadata({"changes": rows.num_rows})


definitions = [build_definitions(HERE), dg.Definitions(assets=[order_changes])]
'''
_DBT = """
import duckdb
from dagster_dbt import DbtCliResource, dbt_assets
from duckdb_extensions import import_extension

DBT = HERE.parent / "dbt"


@dbt_assets(manifest=DBT / "target" / "manifest.json")
def marts(context: dg.AssetExecutionContext, dbt: DbtCliResource):
    import_extension("delta")
    with duckdb.connect(DBT / "marts.duckdb") as connection:
        connection.execute("LOAD delta")
        connection.execute((HERE.parent / "shop_live.sql").read_text())
    yield from dbt.cli(["build"], context=context).stream()


resources = {"dbt": DbtCliResource(project_dir=str(DBT), profiles_dir=str(DBT))}
definitions.append(dg.Definitions(assets=[marts], resources=resources))
"""


@dataclass(frozen=True)
class Followed:
    dagit: Dagit


def _project(folder: Path, server: Server) -> Path:
    project = copy_project(folder)
    (project / "jobs" / "shop.yaml").unlink()
    document = {
        "source": live(server),
        "tables": {"include": ["shop.*"]},
        "sink": {
            "lake_path": str(project / "lake"),
            "publish": {"database": "shop_live", "duckdb": str(project / "shop_live.sql")},
        },
        "verify": {"each_run": {"rows": 100_000}},
    }
    (project / "jobs" / "sales.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return project


def _command(project: Path, *command: str) -> str:
    environment = {**os.environ, "DAGSTER_HOME": str(project / "dagster_home")}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _dbt_project(project: Path) -> None:
    """Its sources are what `cuts dbt` prints of the last cut."""
    models = project / "dbt" / "models"
    models.mkdir(parents=True)
    cli = (sys.executable, "-m", "cdc_pipeline.cli", "--jobs", "jobs")
    _command(project, *cli, "run", "sales")
    (models / "sources.yml").write_text(_command(project, *cli, "cuts", "dbt", "sales"))
    (models / "revenue.sql").write_text(
        "select customer, sum(total) as revenue from {{ source('sales', 'orders') }} group by 1"
    )
    (project / "dbt" / "dbt_project.yml").write_text(
        "{name: marts, version: 1.0.0, profile: marts, model-paths: [models]}"
    )
    output = {"type": "duckdb", "path": "marts.duckdb", "extensions": ["delta"]}
    profile = {"marts": {"target": "dev", "outputs": {"dev": output}}}
    (project / "dbt" / "profiles.yml").write_text(yaml.safe_dump(profile))
    dbt = str(Path(sys.executable).with_name("dbt"))
    folder = ("--project-dir", "dbt", "--profiles-dir", "dbt")
    _command(project, dbt, "parse", *folder)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    with Server("mysql") as server:
        server.execute_all(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(20), total INT)",
            "CREATE TABLE shop.customers (name VARCHAR(20) PRIMARY KEY, city VARCHAR(20))",
            "INSERT INTO shop.customers VALUES ('Ada', 'London'), ('Zoë', 'Athens')",
            "INSERT INTO shop.orders VALUES (1, 'Ada', 10), (2, 'Zoë', 20), (3, 'Ada', 5)",
        )
        project = _project(tmp_path_factory.mktemp("follows") / "project", server)
        _dbt_project(project)
        code = _CHANGES + _DBT + "\ndefs = dg.Definitions.merge(*definitions)\n"
        (project / "jobs" / "definitions.py").write_text(code, encoding="utf-8")
        with Dagit(project) as started:
            job = {"job": "sales_capture", "step": "capture_sales"}
            started.launch(**job, config={"until": "end_of_log"})
            started.materialize("order_changes", "revenue")
            server.execute("UPDATE shop.orders SET total = 11 WHERE id = 1")
            # Nobody has written it to the log: the proof alone can find it.
            server.execute_all("SET sql_log_bin = 0", "UPDATE shop.customers SET city = 'Rome'")
            started.launch(**job, config={"until": "end_of_log"})
            yield Followed(started)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    size = {"width": 1280, "height": 800}
    with browser.new_context(viewport=size, timezone_id="UTC") as context:  # type: ignore[arg-type]
        context.set_default_timeout(PAGE_DEADLINE_S * 1000)
        yield context.new_page()


def _picture(page: Page, name: str) -> None:
    if folder := os.environ.get("PICTURES"):
        page.wait_for_load_state("networkidle")
        page.mouse.move(0, 0)
        page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")


def test_what_the_rolling_proof_finds_fails_the_table_s_check(
    followed: Followed, page: Page
) -> None:
    assets = f"{followed.dagit.url}/assets/sales/shop"
    page.goto(f"{assets}/orders?view=checks&checkDetail=proved")
    expect(page.get_by_text(re.compile("proved through")).first).to_be_visible()
    page.goto(f"{assets}/customers?view=checks&checkDetail=proved")
    expect(page.get_by_text(re.compile("differs from the server")).first).to_be_visible()
    _picture(page, "proved")


def test_an_asset_of_changes_and_dbt_s_models_follow_their_tables(
    followed: Followed, page: Page
) -> None:
    page.goto(f"{followed.dagit.url}/assets/order_changes")
    expect(page.get_by_text("cdc_changes").first).to_be_visible()
    _picture(page, "changes")
    page.set_viewport_size({"width": 1600, "height": 800})
    page.goto(
        f"{followed.dagit.url}/assets/revenue?view=lineage&lineageScope=upstream&lineageDepth=3"
    )
    expect(page.locator("foreignObject", has_text="orders").first).to_be_visible()
    expect(page.locator("foreignObject", has_text="revenue").first).to_be_visible()
    expect(page.get_by_text("Loading")).to_have_count(0)
    _picture(page, "published")
