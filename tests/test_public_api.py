"""What a program imports from `cdc_pipeline`: names, types, what importing costs, and what is said
where Dagster is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cdc_pipeline
from cdc_pipeline.run.wiring import build_lake_cursors
from tests.support.project import ROOT
from tools.pages.python_page import SECTIONS

USER_PROGRAM = '''
"""A scheduler's task, checked as its author checks it."""
from collections.abc import Iterator
from pathlib import Path

import cdc_pipeline
import dagster as dg
from cdc_pipeline import CdcComponent, CdcResource, CdcTranslator, build_definitions, cdc_assets

config = cdc_pipeline.load_config("jobs/shop.yaml")
bound = cdc_pipeline.bound_of(transactions=100)
report = cdc_pipeline.capture(config, bound=bound, run_id="scheduled__2026-01-31")
batches: int = report.batches
again = cdc_pipeline.capture(Path("jobs/shop.yaml"), tables=["shop.orders"])
cut = cdc_pipeline.cuts("lake", "shop", limit=1)[-1]


class Translator(CdcTranslator):
    def job_name(self, source: str) -> str:
        return f"cdc_{source}"


class Bronze(CdcComponent):
    @property
    def translator(self) -> CdcTranslator:
        return Translator()


@cdc_assets(config="jobs/crm.yaml", translator=Translator(), op_tags={"team": "crm"})
def crm(context: dg.AssetExecutionContext, cdc: CdcResource) -> Iterator[object]:
    yield from cdc.run(context)


cdc = CdcResource(environment={"SHOP_PASSWORD": dg.EnvVar("SALES_PASSWORD")})
defs = dg.Definitions.merge(
    build_definitions("jobs", translator=Translator(), resource=cdc),
    dg.Definitions(assets=[crm], resources={"cdc": cdc}),
)
group: str = Bronze(path="jobs").environment  # error
wrong: str = again.batches  # error
cdc_pipeline.capture(config, tables="shop", cursor="lake")  # error
'''


def test_every_public_name_is_there() -> None:
    for name in cdc_pipeline.__all__:
        assert getattr(cdc_pipeline, name) is not None
        assert name in dir(cdc_pipeline)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = cdc_pipeline.nothing


def test_the_page_of_the_reference_has_every_public_name() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(cdc_pipeline.__all__)


def test_importing_loads_no_room() -> None:
    script = (
        "import sys, cdc_pipeline\n"
        "print(sorted(m for m in sys.modules if m.startswith('cdc_pipeline.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['cdc_pipeline.version']"


def test_without_dagster_its_names_say_what_to_install() -> None:
    names = ["build_definitions", "cdc_assets", "CdcComponent", "CdcResource", "CdcTranslator"]
    script = (
        "import sys; sys.modules['dagster'] = None\nimport cdc_pipeline\n"
        f"for name in {names}:\n"
        "    try:\n        getattr(cdc_pipeline, name)\n"
        "    except ImportError as error:\n        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        f"cdc_pipeline.{name} needs Dagster; pip install 'cdc-pipeline[dagster]'" for name in names
    ]


@pytest.mark.whole
def test_a_users_program_is_checked_against_the_package(tmp_path: Path) -> None:
    """The package is typed: mypy finds the two mistakes, and nothing of our own."""
    (tmp_path / "task.py").write_text(USER_PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--cache-dir",
            str(ROOT / ".mypy_cache" / "user"),
            "task.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "MYPYPATH": "", "PYTHONPATH": str(ROOT)},
    )
    lines = [line for line in done.stdout.splitlines() if " error: " in line]
    wrong = {
        number
        for number, line in enumerate(USER_PROGRAM.splitlines(), start=1)
        if line.endswith("# error")
    }
    assert {int(line.split(":")[1]) for line in lines} == wrong, done.stdout + done.stderr
    assert all(line.startswith("task.py:") for line in lines)


def test_a_capture_keeps_its_cursor_in_the_lake(tmp_path: Path) -> None:
    """Without a change of a captured table neither a JVM nor a server is needed for it."""
    shop = ROOT / "cdc_pipeline" / "demo" / "shop"
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"source: {{kind: archive, directory: {shop / 'journals'}}}\n"
        "tables: {include: [shop.not_there], allow_empty: true}\n"
        "sink: {lake_path: lake}\n"
    )
    middle = json.loads((shop / "recording.json").read_text())["middle"]
    bound = cdc_pipeline.bound_of(f"{middle['journal']}:{middle['offset']}")
    first = cdc_pipeline.capture(file, bound=bound)
    assert not first.spark_started
    assert first.cursor is not None
    second = cdc_pipeline.capture(cdc_pipeline.load_config(file))
    assert second.plan.start.offset == first.cursor.position.offset == middle["offset"]
    kept = build_lake_cursors(cdc_pipeline.load_config(file)).read()
    assert kept is not None
    assert second.cursor is not None
    assert kept.position == second.cursor.position
    assert kept.position.order > first.cursor.position.order
