"""Loads under constant writes, killed at random.

``python -m tests.campaigns.load [--rounds N] [--seed S] [--rows N]``.

Each round has a seed, a database, three tables in five modes, a writer that never pauses, and
DDL among that. A load is killed again and again at fault points of the seed's choice, then goes on
to its end, and every table is compared with the server's SELECT. Exits with 1 at the first round
that differs; the seed plays it again.

With ``--swap`` a load of all tables is killed at each fault point of its swap in turn instead, and
gone on with, under the same writes. (`tests/pipeline/load/test_swap_fault_points.py` plays what
such kills leave behind without killing.)
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
from pathlib import Path

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.pipeline.capture.capture import capture
from cdc_pipeline.pipeline.load.load import load
from cdc_pipeline.position.cursor_file import FileCursorStore
from tests.conftest import temporary_database
from tests.pipeline.load.swap_states import left_of_loads
from tests.pipeline.load.test_load import Lake, create_a, is_open, lives
from tests.pipeline.load.writer import Writer
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.crash_children import run_child

FAULT_POINTS = [
    "load_begun",
    "load_created",
    "load_view_part",
    "load_chunks",
    "load_chunks/staging",
    "load_chunks/before_record",
    "load_chunks/after_record",
    "load_chunks/before_cut",
    "load_passed_ddl",
    "load_read/after_record",
    "load_read/between_merges",
    "load_caught_up",
    "load_swapping/before_record",
    "load_swapping/after_record",
    "load_swapping/before_replaced",
    "load_swapping/between_merges",
    "load_swapping/before_cut",
    "load_swapping/before_cursor",
    "load_swapped",
]
SWAP_FAULT_POINTS = [
    "load_swapping",
    "load_swapping/before_record",
    "load_swapping/after_record",
    *("load_swapping/" + "/".join(["before_replaced"] * count) for count in (1, 2, 4)),
    *("load_swapping/" + "/".join(["between_merges"] * count) for count in (1, 2, 4)),
    "load_swapping/before_cut",
    "load_swapping/before_cursor",
    "load_swapping/before_ack",
    "load_swapped",
    "load_removed",
]
_LOAD_S_MAX = 1800.0  # beside a writer that never pauses, on a machine with other work
DDL = [
    "ALTER TABLE a ADD COLUMN m{at} INT NOT NULL DEFAULT {at}",
    "ALTER TABLE a MODIFY v VARCHAR({wide})",
    "ALTER TABLE a RENAME COLUMN p TO q, RENAME COLUMN q TO p",
    "TRUNCATE TABLE a",
    "ALTER TABLE h ADD COLUMN m{at} VARCHAR(5) DEFAULT 'x'",
]


def play(
    server: Server, seed: int, *, rows: int, kills: int, folder: Path, swap: bool = False
) -> None:
    """One round. Raises AssertionError where the lake is not what the server has."""
    chance = random.Random(seed)
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
                if chance.random() < 0.3
                else {**item, "name": "{schema}.{table}_twin"},
                {"tables": [f"{database}.h"], "mode": "history"},
                {"tables": [f"{database}.k"], "keyless": "row_hash"},
            ],
            "snapshot": {
                "chunk_rows": max(50, rows // chance.randint(2, 9)),
                "readers": chance.randint(1, 3),
            },
            "sink": {"lake_path": str(folder / "lake"), "spark": SPARK},
        }
        file, cursors = folder / "config.json", folder / "cursors"
        file.write_text(json.dumps(document), encoding="utf-8")
        config = PipelineConfig.model_validate(document)
        with Writer(server, database, "ahk", seed=seed) as writer:
            for point in SWAP_FAULT_POINTS if swap else ():
                _kill_and_go_on(
                    config,
                    point,
                    file=file,
                    cursors=cursors,
                    names=[f"{database}.{t}" for t in "ahk"],
                )
                print(f"killed at {point}, continued", flush=True)
            for number in range(0 if swap else kills):
                point = chance.choice(FAULT_POINTS)
                done = run_child(
                    [str(file), str(cursors), point],
                    environment={},
                    folder=folder,
                    module="tests.pipeline.load.crash_child",
                    timeout_s=_LOAD_S_MAX,
                )
                assert done.returncode in (0, -signal.SIGKILL), f"{point}: {done.stderr}"
                if chance.random() < 0.4:
                    sql = chance.choice(DDL).format(at=number, wide=3000 + number)
                    server.execute_all(f"USE `{database}`", sql)
                writer.wait_for(3)
            load(config, cursors=FileCursorStore(cursors, source="bank"))
        capture(config, cursors=FileCursorStore(cursors, source="bank"))
        lake = Lake(config, server, database)
        columns = [name for (name, *_) in server.query(f"SHOW COLUMNS FROM `{database}`.a")]
        lake.check("a", columns)
        lake.check("a_soft", columns, lives, source="a")
        of_history = [name for (name, *_) in server.query(f"SHOW COLUMNS FROM `{database}`.h")]
        lake.check("h_history", of_history, is_open, source="h")
        lake.check("k", ["v", "w"])


def _kill_and_go_on(
    config: PipelineConfig, point: str, *, file: Path, cursors: Path, names: list[str]
) -> None:
    """A load of all tables, killed at a fault point; the next one leaves nothing of it."""
    arguments = [str(file), str(cursors), point, *names]
    done = run_child(
        arguments,
        environment={},
        folder=file.parent,
        module="tests.pipeline.load.crash_child",
        timeout_s=_LOAD_S_MAX,
    )
    assert done.returncode == -signal.SIGKILL, f"{point}: {done.stdout}{done.stderr}"
    load(config, cursors=FileCursorStore(cursors, source="bank"))
    paths = LakePaths(config.sink.lake_path, "bank")
    assert left_of_loads(paths) == ["loads.lock"], point


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.load", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=10, help="how many seeds, the flavors in turn"
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--rows", type=int, default=4000, help="of the largest table")
    parser.add_argument("--kills", type=int, default=8, help="in each round")
    parser.add_argument(
        "--swap", action="store_true", help="kill at each fault point of the swap in turn"
    )
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.rounds):
        flavor = "mysql" if seed % 2 else "mariadb"
        with Server(flavor) as server, tempfile.TemporaryDirectory(prefix="cdc-load-") as folder:
            try:
                play(
                    server,
                    seed,
                    rows=options.rows,
                    kills=options.kills,
                    folder=Path(folder),
                    swap=options.swap,
                )
            except AssertionError as error:
                print(f"seed {seed} on {flavor}: {error}", file=sys.stderr)
                print(
                    f"again: python -m tests.campaigns.load --seed {seed} --rounds 1",
                    file=sys.stderr,
                )
                return 1
        print(f"seed {seed} on {flavor}: equal", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
