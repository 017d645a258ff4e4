"""Sources captured by Airflow: one task a source, each run a bounded capture.

cdc_pipeline has an environment of its own, without Dagster, so that its packages and
Airflow's do not meet. The cursor is kept in the lake. To repeat a task is safe: it
continues at the last transaction that is in the lake.
"""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

PROJECT = os.environ.get("CDC_PROJECT", "/srv/cdc_pipeline")  # the folder with jobs/
COMMAND = os.environ.get("CDC_COMMAND", f"{PROJECT}/.venv/bin/cdc-pipeline")
SOURCES = os.environ.get("CDC_SOURCES", "sales").split(",")


@task(
    retries=3,
    retry_delay=timedelta(minutes=1),
    retry_exponential_backoff=True,
    max_active_tis_per_dag=1,  # one capture of a source at a time; a second one would wait
)
def capture(source: str) -> dict[str, object]:
    """Capture a source once and return what the run did."""
    done = subprocess.run(
        [COMMAND, "run", source, "--cursor", "lake", "--json"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,  # the result; progress and notes go to the task's log
        text=True,
        check=False,
    )
    result = json.loads(done.stdout)
    if done.returncode == 0:
        print(f"{source}: {result['reason']}")
        return {name: result[name] for name in ("outcome", "batches", "tables")}
    print(done.stdout)
    message = f"{result['what']}; {result.get('next_step', '')}"
    if result.get("retryable", True):
        raise AirflowException(message)
    raise AirflowFailException(message)  # would fail again: a missing grant, a mistake in a file


@dag(
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a capture reads all that is there: missed intervals need no run of their own
    max_active_runs=1,
    tags=["cdc"],
)
def cdc_pipeline() -> None:
    """Bring the lake's tables up to date."""
    for source in SOURCES:
        capture.override(task_id=f"capture_{source}")(source)


cdc_pipeline()
