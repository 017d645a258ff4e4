"""Record the state that this version leaves, for the tests of later ones (`test_golden_lake.py`).

``python -m tests.golden.record_state [FILE]``, by default ``state-<version>.tar.xz`` beside this
file.

The state is that of the recorded shop with one table in each mode: a run by Dagster up to the
middle, in batches of 4,000 rows; the cursor, also as a file's; and a run that was killed between
the merges of the next batch, whose record and staged files are there and whose cut is not. It needs
Spark. Do it once before a version is released, and never again for that version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.orchestration.runs.execute import load_source, open_instance
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.cursor_file import FileCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.support.captures import SPARK
from tests.support.kills import killed_at

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ("lake", "cursors", "dagster_home")


def config_text(journals: Path) -> str:
    return json.dumps(
        {
            "source": {"kind": "archive", "directory": str(journals)},
            "tables": {
                "include": [
                    f"shop.{name}"
                    for name in ("customers", "products", "orders", "stock_movements")
                ]
            },
            "sink": {"lake_path": "../lake", "spark": SPARK},
            "batch": {"merge_rows": 4000},
            "targets": [
                {"tables": ["shop.products"], "mode": "soft_delete"},
                {"tables": ["shop.orders"], "mode": "history"},
                {"tables": ["shop.stock_movements"], "mode": "changelog"},
            ],
        }
    )


def record(folder: Path) -> None:
    shutil.copytree(SHOP_DIRECTORY / "journals", folder / "journals")
    jobs, home = folder / "jobs", folder / "dagster_home"
    for made in (jobs, home):
        made.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    (jobs / "shop.yaml").write_text(config_text(Path("../journals")))
    os.environ["DAGSTER_HOME"] = str(home)
    middle = json.loads((SHOP_DIRECTORY / "recording.json").read_text())["middle"]
    place = f"{middle['journal']}:{middle['offset']}"
    subprocess.run(
        [sys.executable, "-m", "cdc_pipeline.cli", "--jobs", jobs, "run", "shop", "--until", place],
        check=True,
        cwd=folder,
    )
    with open_instance() as instance:
        cursor = load_source(jobs, "shop").cursors(instance).read()
    if cursor is None:
        raise RuntimeError("Dagster has no cursor of the run")
    FileCursorStore(folder / "cursors", source="shop").write(cursor, {})
    with killed_at("between_merges"):
        capture(load_config(jobs / "shop.yaml"), cursors=MemoryCursorStore(cursor))


def main(arguments: list[str]) -> int:
    default = Path(__file__).with_name(f"state-{version('cdc-pipeline')}.tar.xz")
    file = Path(arguments[0]) if arguments else default
    with tempfile.TemporaryDirectory(prefix="shop-") as home:
        folder = Path(home)
        record(folder)
        for name in ("logs", "schedules", ".logs_queue", ".nux", ".telemetry"):
            shutil.rmtree(folder / "dagster_home" / name, ignore_errors=True)
        with tarfile.open(file, "w:xz", preset=9) as archive:
            for name in KEPT:
                archive.add(folder / name, name, filter=_anonymous)
    print(f"{file}: {file.stat().st_size:,} bytes")
    return 0


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.name.endswith(".lock"):
        return None  # holds who took it last
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
