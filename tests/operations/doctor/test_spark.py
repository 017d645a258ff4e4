"""The one check that starts Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operations.doctor.helpers import diagnosis, pipeline
from tests.support.captures import SPARK


@pytest.mark.spark
def test_spark_writes_and_reads_a_scratch_table(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    source = {"kind": "archive", "directory": tmp_path}
    config = pipeline(source, tmp_path, sink={"lake_path": tmp_path / "lake", "spark": SPARK})
    found = diagnosis(config, with_spark=True, areas=["lake"])
    (told,) = [one for one in found.findings if one.check == "Spark"]
    assert told.severity == "ok", told
    assert "Spark 4." in told.what
    assert "start" in told.what
    assert not list((tmp_path / "lake").iterdir())
