"""Sources captured by Airflow: one task a source, each run a bounded capture.

cdc_pipeline has an environment of its own, without Dagster, so that its packages and
Airflow's do not meet. The cursor is kept in the lake. To repeat a task is safe: it
continues at the last transaction that is in the lake.
"""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta

try:
    from airflow.sdk import dag, task
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
except ImportError:  # Airflow 2
    from airflow.decorators import dag, task
    from airflow.exceptions import AirflowException, AirflowFailException

PROJECT = os.environ.get("CDC_PROJECT", "/srv/cdc_pipeline")  # the folder with jobs/
COMMAND = os.environ.get("CDC_COMMAND", f"{PROJECT}/.venv/bin/cdc-pipeline")
SOURCES = os.environ.get("CDC_SOURCES", "sales").split(",")


@task(
    retries=3,
    retry_delay=timedelta(minutes=1),
    retry_exponential_backoff=True,
    execution_timeout=timedelta(hours=6),
    max_active_tis_per_dag=1,  # one capture of a source at a time; a second one would wait
)
def capture(source: str) -> dict[str, object]:
    """Capture a source once and return what the run did."""
    command = [COMMAND, "run", source, "--cursor", "lake", "--json"]
    # Progress and notes go to the task's log; standard output is the result.
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as run:
        try:
            output, _ = run.communicate()
        except BaseException:  # the task's time is over, or Airflow stops it
            run.terminate()
            raise
    if not output.strip():
        raise AirflowException(f"{COMMAND} ended with code {run.returncode} and without a result")
    result = json.loads(output)
    if run.returncode == 0:
        print(f"{source}: {result['reason']}")
        return {name: result[name] for name in ("outcome", "batches", "tables")}
    print(output)
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
