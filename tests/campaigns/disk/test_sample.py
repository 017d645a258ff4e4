"""A few of the cases of the campaign: a full and a broken disk, a process that ends, a power
cut (K21)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.campaigns.disk.parts import Part, run_part


def _nothing_found(
    folder: Path, part: Part, *, cases: int, stride: int = 1, spark: bool = False
) -> None:
    report = run_part(folder, part, spark=spark, stride=stride, seed=1, states=1)
    assert [json.dumps(finding) for finding in report.findings] == []
    assert report.cases >= cases


@pytest.mark.parametrize(
    "part",
    [
        "full",
        pytest.param("broken", marks=pytest.mark.whole),
        pytest.param("exit", marks=pytest.mark.whole),
    ],
)
def test_k21_a_run_in_which_one_call_fails_is_gone_on_with(tmp_path: Path, part: Part) -> None:
    """The error is one of ours, with a next step; the run after it leaves what a run without faults
    leaves."""
    _nothing_found(tmp_path, part, cases=3, stride=70)


def test_k21_a_power_cut_at_any_fault_point_loses_nothing(tmp_path: Path) -> None:
    """And at each cut the disk has what it names."""
    _nothing_found(tmp_path, "power", cases=6, stride=5)


@pytest.mark.spark
@pytest.mark.nightly
def test_k21_of_what_spark_writes_a_power_cut_takes_nothing_that_a_cut_names(
    tmp_path: Path,
) -> None:
    """The shim sees the JVM's calls: log files, data files, deletion vectors, Hadoop's checksum
    files, folders."""
    _nothing_found(tmp_path, "power", cases=2, stride=16, spark=True)
