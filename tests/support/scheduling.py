"""Which worker of a parallel run takes which tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

APART: Final = frozenset(
    {
        "tests/operations/snapshot/test_snapshot.py",
        "tests/operations/test_erase.py",
        "tests/docs/test_pages.py",
    }
)
"""Files of the longest tests: these begin first, and not all on one worker."""


class OneJvm(LoadFileScheduling):
    """A file stays on one worker, and files that start Spark on as few as need be: a JVM is dear
    to start and slow until it has compiled what the tests run. The other workers take Spark's
    files when nothing else is left.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        is_rest = config.option.markexpr == "whole"  # of which every second test starts Spark
        self._with_spark = max(1, self.numnodes // 2) if is_rest else 1
        self._starts_spark: dict[str, bool] = {}

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        return f"{file}::{name.partition('[')[0]}" if file in APART else file

    def _assign_work_unit(self, node: Any) -> None:
        takes_spark = self.nodes.index(node) < self._with_spark
        scope = next(
            (scope for scope in self.workqueue if self._is_spark(scope) == takes_spark), None
        )
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _is_spark(self, scope: str) -> bool:
        file = scope.partition("::")[0]
        if file not in self._starts_spark:
            text = (self.config.rootpath / Path(file)).read_text(encoding="utf-8")
            self._starts_spark[file] = "mark.spark" in text
        return self._starts_spark[file]
