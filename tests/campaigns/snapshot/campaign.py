"""Loads under constant writes, killed at random.

Each case has a database, three tables in five modes, a writer that never pauses, and DDL among
that. A load is killed again and again at fault points, then goes on to its end, and every table is
compared with the server's SELECT.

With ``swap=true`` a load of all tables is killed at each fault point of its swap in turn instead,
and gone on with, under the same writes.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.long_operations import OPERATIONS_FOLDER
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.campaigns.frame import SERVERS, Campaign, Case, OnDemand, Play, flavors, fresh
from tests.conftest import temporary_database
from tests.operations.snapshot.test_snapshot import Lake, create_a, is_open, lives
from tests.operations.snapshot.writer import Writer
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.crash_children import run_child

FAULT_POINTS = [
    "snapshot_begun",
    "snapshot_created",
    "snapshot_chunks",
    "snapshot_chunks/staging",
    "snapshot_chunks/before_record",
    "snapshot_chunks/after_record",
    "snapshot_chunks/before_adopted",
    "snapshot_chunks/before_cut",
    "snapshot_passed_ddl",
    "snapshot_read/after_record",
    "snapshot_read/between_merges",
    "snapshot_caught_up",
    "snapshot_swapping/before_record",
    "snapshot_swapping/after_record",
    "snapshot_swapping/before_replaced",
    "snapshot_swapping/between_merges",
    "snapshot_swapping/before_cut",
    "snapshot_swapping/before_cursor",
    "snapshot_swapped",
]
_SWAP_FAULT_POINTS = [
    "snapshot_swapping",
    "snapshot_swapping/before_record",
    "snapshot_swapping/after_record",
    *("snapshot_swapping/" + "/".join(["before_replaced"] * count) for count in (1, 2, 4)),
    *("snapshot_swapping/" + "/".join(["between_merges"] * count) for count in (1, 2, 4)),
    "snapshot_swapping/before_cut",
    "snapshot_swapping/before_cursor",
    "snapshot_swapping/before_ack",
    "snapshot_swapped",
    "snapshot_removed",
]
_SNAPSHOT_S_MAX = 1800.0  # beside a writer that never pauses, on a machine with other work
_DDL = [
    "ALTER TABLE a ADD COLUMN m{at} INT NOT NULL DEFAULT {at}",
    "ALTER TABLE a MODIFY v VARCHAR({wide})",
    "ALTER TABLE a RENAME COLUMN p TO q, RENAME COLUMN q TO p",
    "TRUNCATE TABLE a",
    "ALTER TABLE h ADD COLUMN m{at} VARCHAR(5) DEFAULT 'x'",
]


def _case(seed: int, number: int, *, flavor: str, rows: int, kills: int, swap: bool) -> Case:
    chance = random.Random(f"{seed} {number}")
    chosen = flavors(flavor)
    twin = "changelog" if chance.random() < 0.3 else "twin"
    chunk_rows = max(50, rows // chance.randint(2, 9))
    case: Case = [
        ["world", chosen[number % len(chosen)], chance.randrange(1 << 30), rows, twin, chunk_rows,
         chance.randint(1, 3)]
    ]  # fmt: skip
    if swap:
        return [*case, *(["swap", point] for point in _SWAP_FAULT_POINTS)]
    for kill in range(kills):
        case.append(["kill", chance.choice(FAULT_POINTS)])
        if chance.random() < 0.4:
            case.append(["ddl", chance.choice(_DDL).format(at=kill, wide=3000 + kill)])
    return case


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    with OnDemand(Server) as servers:

        def play(case: Case) -> Counter[str]:
            if case and case[0][0] == "world":
                with fresh(folder) as home:
                    _play(servers.get(case[0][1]), case, home)
            return Counter(name for name, *_ in case)

        yield play


def _play(server: Server, case: Case, folder: Path) -> None:
    _name, _flavor, seed, rows, twin, chunk_rows, readers = case[0]
    with temporary_database(server) as database:
        create_a(server, database)
        server.execute_all(
            f"USE `{database}`",
            *(
                f"INSERT INTO a SELECT id + {400 * at}, v, n FROM a WHERE id < 400"
                for at in range(1, rows // 400)
            ),
            # Columns of the same values in all rows, which only DDL changes.
            "ALTER TABLE a ADD COLUMN p INT DEFAULT 7, ADD COLUMN q VARCHAR(5) DEFAULT 'q'",
            "CREATE TABLE h (id INT PRIMARY KEY, v INT)",
            "CREATE TABLE k (v INT, w VARCHAR(5))",
            "INSERT INTO h VALUES (1, 1), (2, 2), (3, 3)",
            "INSERT INTO k VALUES (1, 'x'), (1, 'x'), (2, NULL)",
        )
        item = {"tables": [f"{database}.a"]}
        document = {
            "name": "bank",
            "source": live(server),
            "tables": {"include": [f"{database}.*"]},
            "start": here(server),
            "targets": [
                item,
                {**item, "mode": "soft_delete", "name": "{schema}.{table}_soft"},
                {**item, "mode": "changelog"}
                if twin == "changelog"
                else {**item, "name": "{schema}.{table}_twin"},
                {"tables": [f"{database}.h"], "mode": "history"},
                {"tables": [f"{database}.k"], "keyless": "row_hash"},
            ],
            "snapshot": {
                "chunk_rows": chunk_rows,
                "readers": readers,
            },
            "sink": {"lake_path": str(folder / "lake"), "spark": SPARK},
        }
        file, cursors = folder / "config.json", folder / "cursors"
        file.write_text(json.dumps(document), encoding="utf-8")
        config = PipelineConfig.model_validate(document)
        with Writer(server, database, "ahk", seed=seed) as writer:
            for name, what in case[1:]:
                if name == "swap":
                    _kill_and_go_on(config, what, file, cursors, [f"{database}.{t}" for t in "ahk"])
                elif name == "kill":
                    done = _killed(file, cursors, what)
                    assert done.returncode in (0, -signal.SIGKILL), f"{what}: {done.stderr}"
                    writer.wait_for(3)
                else:
                    server.execute_all(f"USE `{database}`", what)
            take_snapshot(config, cursors=DeltaCursorStore(cursors, source="bank"))
        capture(config, cursors=DeltaCursorStore(cursors, source="bank"))
        lake = Lake(config, server, database)
        columns = [name for (name, *_) in server.query(f"SHOW COLUMNS FROM `{database}`.a")]
        lake.check("a", columns)
        lake.check("a_soft", columns, lives, source="a")
        of_history = [name for (name, *_) in server.query(f"SHOW COLUMNS FROM `{database}`.h")]
        lake.check("h_history", of_history, is_open, source="h")
        lake.check("k", ["v", "w"])


def _killed(file: Path, cursors: Path, point: str, *names: str) -> subprocess.CompletedProcess[str]:
    return run_child(
        [str(file), str(cursors), point, *names],
        environment={},
        folder=file.parent,
        module="tests.operations.snapshot.crash_child",
        timeout_s=_SNAPSHOT_S_MAX,
    )


def _kill_and_go_on(
    config: PipelineConfig, point: str, file: Path, cursors: Path, names: list[str]
) -> None:
    """A load of all tables, killed at a fault point; the next one leaves nothing of it."""
    done = _killed(file, cursors, point, *names)
    assert done.returncode == -signal.SIGKILL, f"{point}: {done.stdout}{done.stderr}"
    take_snapshot(config, cursors=DeltaCursorStore(cursors, source="bank"))
    paths = LakePaths(config.sink.lake_path, "bank")
    left = [at.name for at in (paths.state / OPERATIONS_FOLDER).iterdir()]
    assert left == ["operations.lock"], point


CAMPAIGN = Campaign(
    "snapshot",
    _case,
    _opened,
    case_s_max=7200,
    needs=(*SERVERS, "jars"),
    options={"flavor": "", "rows": 4000, "kills": 8, "swap": False},
    budget="10",
    processes_max=1,
    shrink_plays_max=12,
    on_disk=True,
)
