"""A person's change of the cursor as a separate Dagster run, because only a run's event is a valid
cursor (K3).

Rules:
- The job is built for one execution and is in no definitions, so nobody can start it from Dagster's
  pages by accident.
- It takes the slot of the source's pool like a capture, and the change itself takes the lake's
  lock.
"""

# No postponed annotations: Dagster refuses a step's own as text.
from collections.abc import Callable
from typing import Final, Literal

import dagster as dg

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.orchestration.assets.capture_asset import pool_name
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.dead_runs import PROCESS_TAG, free_dead_runs, this_process
from cdc_pipeline.orchestration.events.failures import unexpected
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.runs.execute import LoadedSource
from cdc_pipeline.orchestration.translator import SOURCE_TAG

# Makes the change; called with the store to write through and the run's id.
Work = Callable[[DagsterCursorStore, str], object]
ChangeKind = Literal["set", "rebuild", "replay", "discard", "load", "repair", "reset"]
_COMMANDS: Final[dict[ChangeKind, str]] = {
    "set": "cdc-pipeline cursor set",
    "rebuild": "cdc-pipeline cursor rebuild",
    "replay": "cdc-pipeline quarantine replay",
    "discard": "cdc-pipeline quarantine discard",
    "load": "cdc-pipeline snapshot",
    "repair": "cdc-pipeline verify --repair",
    "reset": "cdc-pipeline reset",
}


def execute_cursor_change(
    loaded: LoadedSource,
    config: PipelineConfig,
    *,
    kind: ChangeKind,
    instance: dg.DagsterInstance,
    work: Work,
    log_level: str = "CRITICAL",
    on_waiting: Callable[[list[str]], None] | None = None,
) -> str:
    """Run `work` as the job ``<source>_cursor_<kind>`` and return the run's id.

    Raises the CdcError of `work`; the run has failed with it.
    """
    caught: list[BaseException] = []

    @dg.op(name=f"{kind}_cursor_of_{loaded.source}", pool=pool_name(loaded.source))
    def change(context: dg.OpExecutionContext) -> None:
        recorder = MaterializationRecorder(context, config, translator=loaded.translator)
        store = DagsterCursorStore(
            context.instance,
            asset_key=loaded.cursor_key,
            source=loaded.source,
            writer=recorder.write_cursor,
        )
        try:
            work(store, context.run_id)
        except CdcError as error:
            caught.append(error)
            raise dg.Failure(description=str(error), allow_retries=False) from error
        except Exception as error:
            caught.append(error)
            raise unexpected(error) from None
        except BaseException as error:
            caught.append(error)
            raise

    @dg.job(
        name=f"{loaded.source}_cursor_{kind}",
        description=f"A manual change of the lake or the cursor of {loaded.source}: "
        f"`{_COMMANDS[kind]}`.",
        executor_def=dg.in_process_executor,
        tags={SOURCE_TAG: loaded.source},
    )
    def job() -> None:
        change()

    _, alive = free_dead_runs(instance, pool=pool_name(loaded.source))
    if alive and on_waiting is not None:
        on_waiting(alive)
    result = job.execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={"loggers": {"console": {"config": {"log_level": log_level}}}},
        tags={PROCESS_TAG: this_process()},
    )
    if caught:
        raise caught[0]
    if not result.success:
        raise RuntimeError(
            f"the run {result.run_id} failed before the change began; its page in Dagster shows why"
        )
    return result.run_id
