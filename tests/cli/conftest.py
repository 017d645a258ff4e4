"""A project for the command line whose capture is the tests' own."""

from __future__ import annotations

import pytest

from tests.support.project import ROOT, Project

DEFINITIONS = """
from pathlib import Path
from cdc_pipeline.orchestration.definitions import build_definitions
from tests.support.fake_capture import FakeCapture, cut
from tests.orchestration.test_capture_job import TWO_CUTS

defs = build_definitions(Path(__file__).parent, capture=FakeCapture(TWO_CUTS), retry_wait_s=0)
"""


@pytest.fixture
def fake_project(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose definitions.py hands in the tests' own capture."""
    from tests.support.fake_capture import write_config

    write_config(project.jobs, "shop", include=("shop.orders", "shop.*"))
    (project.jobs / "definitions.py").write_text(DEFINITIONS)
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return project
