"""A process that plays one step after the other with one JVM: ``python -m
tests.campaigns.secrets.child FOLDER FD``.

Rules:
- Each line of standard input is a step as JSON: a command of the console script, or ``{"constrain":
  folder, "check": condition}``, a CHECK constraint on a Delta table, so that the next batch fails
  in Spark. Its commit says that it is maintenance: a run that meets a commit of others suspends the
  table before Spark sees a row.
- What a step prints goes to files of its own in FOLDER, the JVM's words included. Its exit code
  goes to FD.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(folder: str, answers: str) -> int:
    for line in sys.stdin:
        step: dict[str, Any] = json.loads(line)
        for number, kind in ((1, "out"), (2, "err")):
            getattr(sys, "stdout" if number == 1 else "stderr").flush()
            file = os.open(
                Path(folder) / f"{step['name']}.{kind}",
                os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
                0o600,
            )
            os.dup2(file, number)
            os.close(file)
        os.environ.update(step["environment"])
        code = _constrain(step) if "constrain" in step else _command(step["arguments"])
        os.write(int(answers), f"{code}\n".encode())
    return 0


def _command(arguments: list[str]) -> int:
    from cdc_pipeline.cli import app

    sys.argv = ["cdc-pipeline", *arguments]
    try:
        app.run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _constrain(step: dict[str, Any]) -> int:
    from cdc_pipeline.config.pipeline_config import SparkConfig
    from cdc_pipeline.sink.delta.log import (
        PROPERTIES_OPERATION,
        commit_file,
        json_lines,
        maintenance_note,
    )
    from cdc_pipeline.sink.delta.table_log import read_table_log
    from cdc_pipeline.sink.spark.session import SparkProvider

    provider = SparkProvider(SparkConfig(master="local[2]", driver_memory="1g"))
    path = Path(step["constrain"])
    provider.session().sql(
        f"ALTER TABLE delta.`{path}` ADD CONSTRAINT low CHECK ({step['check']})"
    ).collect()
    provider.stop()
    table = read_table_log(path)
    assert table is not None
    file = commit_file(path, table.version)
    actions = [json.loads(line) for line in json_lines(file.read_text())]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"].update(
                operation=PROPERTIES_OPERATION, userMetadata=maintenance_note(table.app_id)
            )
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
