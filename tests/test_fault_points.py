"""Fault points: one table of all of them, and listeners of the whole process."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pytest

import cdc_pipeline
from cdc_pipeline.fault_points import FAULT_POINTS, listening, reach
from tests.support.kills import AtPoint, Killed, end_run, killed_at

PACKAGE = Path(cdc_pipeline.__file__).parent


def test_each_point_of_the_table_is_reached_by_the_product_and_no_other() -> None:
    points = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "reach"
            ):
                (point,) = node.args
                assert isinstance(point, ast.Constant), f"{file}:{node.lineno}"
                points.add(point.value)
    assert points == set(FAULT_POINTS)


def test_the_product_never_listens() -> None:
    users = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "fault_points import" in (text := file.read_text(encoding="utf-8"))
        and "from cdc_pipeline.fault_points import reach\n" not in text
    ]
    assert users == []


def test_listeners_hear_every_thread_until_their_context_ends_even_by_an_error() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with listening(outer.append):
        thread = threading.Thread(target=reach, args=("spill",))
        thread.start()
        thread.join()
        with pytest.raises(Killed), listening(inner.append), listening(AtPoint("put", end_run)):
            reach("put")
        reach("staging")
    reach("before_cut")
    assert outer == ["spill", "put", "staging"]
    assert inner == ["put"]


def test_a_path_of_points_is_passed_in_its_order() -> None:
    with killed_at("snapshot_chunks/staging/staging"):
        reach("staging")
        reach("snapshot_chunks")
        reach("snapshot_chunks")
        reach("staging")
        reach("staging")
