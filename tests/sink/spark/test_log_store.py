"""Two processes commit one version of a table in a folder at once: one of them fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.log import commit_file
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.captures import SPARK

_RENAME_TAKES_US = 2_000_000


@pytest.mark.whole
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace delays a system call")
def test_k16_f237_no_commit_of_spark_takes_the_place_of_another_processes(tmp_path: Path) -> None:
    """Between the last look at a commit's name and the rename to it, another process commits."""
    table = tmp_path / "table"
    slow = ["-e", "trace=rename", "-e", f"inject=rename:delay_enter={_RENAME_TAKES_US}"]
    run = [sys.executable, "-m", __name__, str(table)]
    command = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", *slow, *run]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"taken": told["is_ours"], "is_ours": told["is_ours"]}


def _main(table: Path) -> None:
    session = SparkProvider(SparkConfig(**SPARK)).session()
    rows = session.range(1).write.format("delta")
    rows.save(str(table))
    commit, ours = commit_file(table, 1), b'{"commitInfo":{"timestamp":1}}\n'
    thread = threading.Thread(target=rows.mode("append").save, args=[str(table)])
    thread.start()
    while thread.is_alive() and not any(commit.parent.glob(f".{commit.name}.*")):
        time.sleep(0.01)
    time.sleep(_RENAME_TAKES_US / 2e6)
    taken = storage_of(commit).put_if_absent(commit, ours)
    thread.join()
    print(json.dumps({"taken": taken, "is_ours": commit.read_bytes() == ours}))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
