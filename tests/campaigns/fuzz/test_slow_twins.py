"""The same kernels as plain Python in a process of their own: the same rows, and no number that
overflows unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.campaigns.fuzz.slow_child import decoded

ROOT = Path(__file__).parents[3]
SMALL = {
    "mysql": [
        "mysql-numbers",
        "mysql-times",
        "mysql-texts",
        "mysql-json",
        "mysql-payload",
        "mysql-anonymous",
    ],
    "mariadb": ["mariadb-numbers", "mariadb-texts", "mariadb-compressed", "mariadb-plain"],
}


@pytest.mark.parametrize("flavor", ["mysql", pytest.param("mariadb", marks=pytest.mark.whole)])
def test_uncompiled_kernels_give_the_same_rows(flavor: str, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    child = subprocess.run(
        [sys.executable, "-m", "tests.campaigns.fuzz.slow_child", str(slow), *SMALL[flavor]],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    for name in SMALL[flavor]:
        fast = decoded(name, tmp_path)
        assert len(fast) > 5
        files = {file.name: file for file in slow.glob(f"{name}.*.arrow")}
        assert set(files) == {f"{name}.{key}.arrow" for key in fast}
        for key, batches in fast.items():
            with pa.ipc.open_stream(files[f"{name}.{key}.arrow"]) as stream:
                twins = list(stream)
            assert [batch.schema for batch in batches] == [batch.schema for batch in twins], key
            for batch, twin in zip(batches, twins, strict=True):
                assert batch.equals(twin), key
                assert batch.num_rows == twin.num_rows
