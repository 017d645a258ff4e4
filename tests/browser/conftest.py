"""One Dagster and one browser for all tests of this folder; a page of its own for each test."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.dagit import Dagit, copy_project
from tests.browser.installation import FLAGS, find_browser

PAGE_DEADLINE_S = 180
expect.set_options(timeout=PAGE_DEADLINE_S * 1000)
_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_failed] = report.failed
    return report


@pytest.fixture(scope="package")
def dagit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dagit]:
    with Dagit(copy_project(tmp_path_factory.mktemp("dagit") / "project")) as started:
        yield started


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A headless Chromium. It goes with this folder's last test: its event loop would be in the way
    of other tests'."""
    found = find_browser()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=str(found.program),
            args=list(FLAGS),
            env=found.full_environment(),
            chromium_sandbox=False,
        )
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    """A page that no test has touched. Of a test that fails, a screenshot stays in its tmp_path."""
    with browser.new_context(viewport={"width": 1500, "height": 950}, timezone_id="UTC") as context:
        context.set_default_timeout(PAGE_DEADLINE_S * 1000)
        opened = context.new_page()
        yield opened
        if request.node.stash.get(_failed, False):
            opened.screenshot(path=tmp_path / "page.png", full_page=True)
            print(f"screenshot of {opened.url}: {tmp_path / 'page.png'}")
