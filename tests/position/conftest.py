"""The three cursor stores behind one form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_pipeline.position.cursor import CursorStore
from tests.support.cursor_stores import opener_of


@pytest.fixture
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., CursorStore]:
    """`opener(source="shop")`: a new handle on one and the same place. The kind is the test's
    parameter."""
    kind: str = request.param
    found = request.getfixturevalue("instance") if kind == "dagster" else None
    return opener_of(kind, tmp_path / "place", found)
