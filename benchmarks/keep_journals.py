"""What keeping journals costs beside reading them: CPU-seconds of this process for the same log of
a real server, read with and without `source.keep_journals`, in turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from cdc_pipeline.config.pipeline_config import KeepJournalsConfig
from cdc_pipeline.source.live.live import LiveSource
from tests.servers import Server
from tests.support.live_source import live_config


def cpu_s(server: Server, keep: KeepJournalsConfig | None) -> float:
    config = live_config(server).model_copy(update={"keep_journals": keep})
    with closing(LiveSource(config, pipeline_name="shop")) as source:
        begin, end = source.earliest_position(), source.end_position()
        source.keep_journals()
        began_s = time.process_time()
        for _ in source.chunks(replace(begin, gtid_set=""), replace(end, gtid_set="")):
            pass
        return time.process_time() - began_s


def main(rounds: int = 5) -> None:
    with Server("mysql") as server, tempfile.TemporaryDirectory() as folder:
        server.execute_all(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(100))",
            "INSERT INTO shop.t (a, b) VALUES (1, REPEAT('x', 60))",
            *["INSERT INTO shop.t (a, b) SELECT a + 1, b FROM shop.t"] * 20,
        )
        size_bytes = sum(file.stat().st_size for file in server.journals())
        plain, kept, packed = list[float](), list[float](), list[float]()
        for number in range(rounds):
            plain.append(cpu_s(server, None))
            for costs, compress in ((kept, False), (packed, True)):
                path = Path(folder) / f"{number}-{compress}"
                costs.append(cpu_s(server, KeepJournalsConfig(path=path, compress=compress)))
        print(f"{size_bytes} bytes of journals")
        for name, costs in (("read", plain), ("kept", kept), ("compressed", packed)):
            print(f"{name}: {statistics.median(costs):.3f} CPU-seconds, {costs}")


if __name__ == "__main__":
    main()
