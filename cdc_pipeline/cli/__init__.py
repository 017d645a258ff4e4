"""The command line: one module per command, each loaded only when it is called.

Rules:
- ``cdc-pipeline --help`` loads neither Dagster, Spark nor numba: command modules import them inside
  their functions. What files tell (`validate`, `status`, `cuts`) needs none of them, nor Arrow.
- Results go to standard output; progress, notes and errors go to standard error. With ``--json``
  standard output holds exactly one JSON document, even for an error.
- Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 stopped by SIGINT, 143 by
  SIGTERM; for ``doctor``, by the worst finding: 0 fine, 1 warnings, 2 errors.
"""

from __future__ import annotations


def main() -> None:
    from cdc_pipeline import pandas_import
    from cdc_pipeline.collector import collect_rarely

    collect_rarely()  # before anything is imported, which creates most of a process's objects
    pandas_import.keep_out()
    from cdc_pipeline.cli.app import run

    run()
