"""Arrow imports pandas, for half a CPU-second, when it makes its first array or scalar of Python
values: to recognise pandas' own. A process of the command line has none, so there pandas looks as
if it was not installed, until Spark, whose Arrow functions need it, starts. Dagster's processes, in
which others' code runs, import it as ever.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _KeptOut(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=name)


_FINDER = _KeptOut()


def keep_out() -> None:
    sys.meta_path.insert(0, _FINDER)


def let_in() -> None:
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
