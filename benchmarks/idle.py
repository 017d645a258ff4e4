"""A run that finds nothing new: CPU-seconds of the whole process, and no JVM.

    python -m benchmarks.idle [--json]

The shop is captured into a lake of its own first; then `cdc-pipeline run shop` finds nothing. The
yardstick is a process that imports Dagster and loads the same definitions. The definitions are also
loaded from a lake whose newest cut knows 1,000 tables. All figures are medians of five processes,
after one to warm up.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.report import Figure, report
from benchmarks.shop_project import ShopProject, captured_shop
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.table_facts import put_cut

RATIO_MAX = 1.2
TABLES = 1000
DEFINITIONS_CPU_S_MAX = 2.0
LOAD = (
    "import dagster; from cdc_pipeline.orchestration.definitions import build_definitions; "
    "build_definitions({jobs!r}).get_repository_def().load_all_definitions()"
)


def main() -> int:
    with captured_shop() as project:
        idle = project.command("run", "shop", "--json")
        load = project.python(LOAD.format(jobs=str(project.root / "jobs")))
        yardstick_s, idle_s = project.cpu_s(load), project.cpu_s(idle)
        found = json.loads(project.run(idle))
        if found["outcome"] != "nothing_new":
            raise SystemExit(f"the run applied something: {found['reason']}")
        figures = [
            Figure("import Dagster, load the definitions", yardstick_s, "CPU-s"),
            Figure("run that finds nothing new", idle_s, "CPU-s"),
            Figure("... against it", idle_s / yardstick_s, "times", RATIO_MAX),
            Figure("... JVMs started", float(found["spark_started"]), "", 0.0),
        ]
        know_tables(project, TABLES)
        many_s = project.cpu_s(load)
    figures.append(
        Figure(f"load the definitions of {TABLES:,} tables", many_s, "CPU-s", DEFINITIONS_CPU_S_MAX)
    )
    return report("a run that finds nothing new", figures)


def know_tables(project: ShopProject, count: int) -> None:
    """Publish a cut that knows `count` tables like the shop's orders."""
    job = project.root / "jobs" / "shop.yaml"
    head, _, rest = job.read_text(encoding="utf-8").partition("tables:")
    job.write_text(f'{head}tables: {{include: ["shop.*"]}}\n\nstore:{rest.partition("store:")[2]}')
    paths = LakePaths(project.root / "lake", "shop")
    last = state.last_cut(paths)
    if last is None:
        raise SystemExit("the shop's lake has no cut")
    table = last.tables["shop.orders"].model_dump_json(exclude={"facts"})
    target = last.cursor.targets["shop.orders"].model_dump_json()
    tables: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    for number in range(count):
        new = f"shop.orders_{number:05d}"
        for text, kind, made in (
            (table, type(last.tables["shop.orders"]), tables),
            (target, type(last.cursor.targets["shop.orders"]), targets),
        ):
            made[new] = kind.model_validate_json(text.replace("shop.orders", new))
    number = last.batch_number + 1
    cursor = last.cursor.model_copy(update={"batch_number": number, "targets": targets})
    put_cut(
        paths,
        last.model_copy(update={"batch_number": number, "tables": tables, "cursor": cursor}),
    )


if __name__ == "__main__":
    sys.exit(main())
