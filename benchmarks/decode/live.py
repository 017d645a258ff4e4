"""Reading a live server's log into the store, and dropping the same packets: prints CPU seconds of
each, run by run.

    python -m benchmarks.decode.live JOURNAL

A MySQL server is started with the journal as its first. All ways use the same connection, handed
over as the capture does it, and the same end. Dropping: `recv_into` a block of a MiB, nothing else.
Dropping packets: the same, and a compiled walk over the packets' headers, so that it ends with the
last packet. Reading: packets and events framed, CRC verified, transactions grouped and put into the
mixed store, from which another thread takes and acks them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.store_passage import pass_through
from cdc_pipeline.binlog.native.compiling import kernel
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.handover import DumpRequest, open_dump
from cdc_pipeline.source.live.live import LiveSource
from tests.servers import Server

RUNS = 7
BLOCK_BYTES = 1 << 20
_JOURNAL = "binlog.000001"

# Fields of the state of `_drop_packets`: payload bytes so far, and those that are left of the
# packet; bytes of the next header that have come, and its length so far.
_PAYLOAD_BYTES, _LEFT, _HEADER, _LENGTH = range(4)
_STATE_FIELDS = 4


def measure(journal: Path) -> dict[str, list[float]]:
    """CPU seconds of `RUNS` runs of each way, taken in turn after one that is not counted."""
    server = Server("mysql", {"max_binlog_size": 1 << 30})
    try:
        server.prepare()
        shutil.copyfile(journal, server.datadir / _JOURNAL)
        (server.datadir / "binlog.index").write_text(f"./{_JOURNAL}\n", encoding="utf-8")
        server.start()
        user, password = server.create_replication_user()
        with tempfile.TemporaryDirectory(prefix="cdc-bench-live-") as folder:
            config = PipelineConfig.model_validate(
                {
                    "name": "bench",
                    "source": {
                        "kind": "live",
                        "host": server.host,
                        "port": server.port,
                        "user": user,
                        "password": password,
                        "tls": {"mode": "off"},
                    },
                    "store": {"directory": folder},
                    "sink": {"lake_path": Path(folder) / "lake"},
                }
            )
            size_bytes = journal.stat().st_size
            dropping, packets, reading = [], [], []
            for _ in range(RUNS + 1):
                dropping.append(_cpu_seconds(lambda: drop(config, size_bytes)))
                packets.append(_cpu_seconds(lambda: drop_packets(config, size_bytes)))
                reading.append(_cpu_seconds(lambda: read(config, size_bytes)))
    finally:
        server.close()
    return {"dropping_s": dropping[1:], "dropping_packets_s": packets[1:], "reading_s": reading[1:]}


def drop(config: PipelineConfig, size_bytes: int) -> None:
    source = _source(config)
    dump = open_dump(source.config, DumpRequest("mysql", _JOURNAL, len(b"\xfebin")), source.replica)
    block = np.empty(BLOCK_BYTES, np.uint8)
    while size_bytes > 0:
        received = dump.read(block)
        assert received, "the server closed the connection"
        size_bytes -= received
    dump.close()
    source.close()


def drop_packets(config: PipelineConfig, size_bytes: int) -> None:
    """Receive the journal's packets, and drop each by its length."""
    source = _source(config)
    dump = open_dump(source.config, DumpRequest("mysql", _JOURNAL, len(b"\xfebin")), source.replica)
    block = np.empty(BLOCK_BYTES, np.uint8)
    state = np.zeros(_STATE_FIELDS, np.int64)
    while state[_PAYLOAD_BYTES] < size_bytes:
        received = dump.read(block)
        assert received, "the server closed the connection"
        _drop_packets(block, received, state)
    dump.close()
    source.close()


@kernel
def _drop_packets(block: NDArray[np.uint8], size: int, state: NDArray[np.int64]) -> None:
    """Step over the packets in block[:size]; `state` carries what is left of the last one."""
    at = 0
    while at < size:
        if state[_LEFT] > 0:
            count = min(state[_LEFT], size - at)
            state[_LEFT] -= count
            state[_PAYLOAD_BYTES] += count
            at += count
            continue
        if state[_HEADER] < 3:
            state[_LENGTH] |= np.int64(block[at]) << (8 * state[_HEADER])
            state[_HEADER] += 1
        else:
            state[_LEFT], state[_LENGTH], state[_HEADER] = state[_LENGTH], 0, 0
        at += 1


def read(config: PipelineConfig, size_bytes: int) -> None:
    source = _source(config)
    passed = pass_through(config, source, Position(_JOURNAL, 4), Position(_JOURNAL, size_bytes))
    source.close()
    assert passed.event_bytes > size_bytes * 0.99, "not everything came through the store"


def _source(config: PipelineConfig) -> LiveSource:
    assert config.source.kind == "live"
    return LiveSource(config.source, pipeline_name=config.name)


def _cpu_seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
