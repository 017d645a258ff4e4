"""The kernels uncompiled, and compiled with bounds checks: the same small tests in a process of
their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

FILES = (
    "rows/test_decode.py",
    "kernels/test_kernels.py",
    "rows/test_json.py",
    "rows/test_jsonl.py",
)
# Small cases that meet every kernel.
SMALL = (
    "test_k1_ops or test_minimal_images or test_a_cut_event or test_an_insert_of_no_columns or "
    "test_geometry or test_year or test_old_temporal or test_decimal_groups or test_facts_a10 or "
    "test_keys_stay or test_a_hundred or test_entries_that_share or test_null_literal or test_bits "
    "or test_times_below or test_set_and_enum or test_decimals or test_datetimes or "
    "test_timestamps or test_unicode or test_damaged_documents or test_values_at_their_edges or "
    "test_lines_ or test_a_number_of_a_gtid or test_statements_stand or test_rows_with_and_without "
    "or test_events_of_all_kinds or test_unknown_options or test_differences_that_do_not"
)


def run(tmp_path: Path, *more: str, **settings: str) -> None:
    files = [str(HERE.parent / name) for name in (*FILES, *more)]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", SMALL, *files],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


@pytest.mark.whole
def test_uncompiled(tmp_path: Path) -> None:
    run(tmp_path, "rows/test_partial_json.py", NUMBA_DISABLE_JIT="1")


@pytest.mark.whole
def test_with_bounds_checks(tmp_path: Path) -> None:
    run(tmp_path, NUMBA_BOUNDSCHECK="1")
