"""The code on the page about Dagster loads as it is written: each section in a project of its own.

A block with a title is that file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from cdc_pipeline import CdcComponent
from tests.docs.pages import DOCS

PAGE = DOCS / "dagster.md"
_BLOCK = re.compile(r'^```(?:python|yaml) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ORDERS = {
    "In your own definitions": "shop/shop/orders",
    "Keys, groups and metadata: CdcTranslator": "bronze/shop/orders",
    "Passwords, when a run begins: CdcResource": "shop/shop/orders",
    "A body of your own: cdc_assets": "shop/shop/orders",
}


def blocks(heading: str) -> dict[str, str]:
    """The files of a section, without those of the sections below it."""
    parts = re.split(r"^##+ (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    return dict(_BLOCK.findall(sections[heading]))


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs"
    folder.mkdir()
    ((name, text),) = blocks("Owners, tags, freshness and automation").items()
    (tmp_path / name).write_text(text)
    return folder


def load(file: Path) -> dg.Definitions:
    module = ModuleType(f"page_{file.parent.parent.name}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(file.read_text(), file, "exec", dont_inherit=True), vars(module))
    finally:
        del sys.modules[module.__name__]
    found: dg.Definitions = module.defs
    dg.Definitions.validate_loadable(found)
    return found


def _specs(definitions: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


@pytest.mark.parametrize("heading", ORDERS)
def test_the_definitions_of_a_section_load(jobs: Path, heading: str) -> None:
    ((name, text),) = blocks(heading).items()
    (jobs.parent / name).write_text(text)
    orders = _specs(load(jobs.parent / name))[ORDERS[heading]]
    assert list(orders.owners) == ["sales@example.com", "team:data"]
    assert orders.tags["tier"] == "gold"
    assert orders.freshness_policy is not None
    assert orders.automation_condition is not None
    assert str(orders.description).startswith("Every order since 2019.")


def test_every_block_with_a_title_is_loaded() -> None:
    titled = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    component = blocks("A component for dg: CdcComponent")
    assert len(titled) == 1 + len(ORDERS) + len(component)


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")
@pytest.mark.parametrize(
    ("title", "orders"),
    [
        ("defs/shop/defs.yaml", "shop/shop/orders"),
        ("defs/sales/defs.yaml", "bronze/shop/orders"),
    ],
)
def test_a_component_of_the_page_loads(jobs: Path, title: str, orders: str) -> None:
    body = yaml.safe_load(blocks("A component for dg: CdcComponent")[title])
    folder = Path(title).parent.name
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(CdcComponent, folder, defs_yaml_contents=body)
        (path / "shop.yaml").write_text((jobs / "shop.yaml").read_text())
        with sandbox.load_component_and_build_defs(path) as (_, definitions):
            specs = _specs(definitions)
    assert {orders, f"{folder}/cursor"} <= specs.keys()
