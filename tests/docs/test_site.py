"""The site builds without a warning, needs no network to be read, and its generated pages are
current.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.section import Section, setting_name
from cdc_pipeline.config.settings import every_section, meaning, texts
from tests.support.project import ROOT
from tools.pages.__main__ import PAGES
from tools.pages.metadata_page import MEANINGS
from tools.pages.settings_page import sections


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_every_setting_says_what_it_does_and_no_text_is_left_over() -> None:
    models = {model.__name__: model for _, model in sections(PipelineConfig)}
    silent = [
        f"{model.__name__}.{name}"
        for model in models.values()
        for name in model.model_fields
        if (model, name) != (PipelineConfig, "name") and not meaning(model, name)
    ]
    assert not silent, "say it in cdc_pipeline/config/setting_texts.yaml"
    known = {
        (base.__name__, setting_name(name, field))
        for model in every_section(PipelineConfig)
        for base in model.__mro__
        if issubclass(base, Section)
        for name, field in base.model_fields.items()
    }
    left = [(model, name) for model, said in texts().items() for name in said]
    assert not set(left) - known, "remove it from cdc_pipeline/config/setting_texts.yaml"


def test_what_entries_mean_is_one_line_each() -> None:
    assert all(meaning and "\n" not in meaning for meaning in MEANINGS.values())


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]*\ssrc=\"(?:https?:)?//|<link[^>]*\shref=\"(?:https?:)?//"
    )
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    assert not [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))]
