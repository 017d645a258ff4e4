"""The command line: one module per command, each loaded only when it is called.

Rules:
- ``cdc-pipeline --help`` loads neither Dagster, Spark nor numba: command modules import them inside
  their functions. What files tell (`validate`, `status`, `cuts`) needs none of them, nor Arrow.
- Results go to standard output; progress, notes and errors go to standard error. With ``--json``
  standard output holds exactly one JSON document, even for an error.
- Exit codes: 0 done, 1 failed, 2 wrong usage or configuration; for ``doctor``, by the worst
  finding: 0 fine, 1 warnings, 2 errors.
"""

from __future__ import annotations

import gc
from typing import Final

# Starting a run allocates a million objects that live as long as the process (modules, classes,
# schemas). At Python's own thresholds the collector visits them over and over: a quarter of an idle
# run's CPU. A collection each 50,000 allocations bounds what cycles can hold back just as well.
_COLLECT_EACH: Final = (50_000, 20, 10)


def main() -> None:
    """Entry point of the console script."""
    gc.set_threshold(*_COLLECT_EACH)
    from cdc_pipeline.cli.app import run

    run()
