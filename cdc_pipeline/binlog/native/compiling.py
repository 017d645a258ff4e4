"""Decorators that compile kernels.

Rules:
- Kernels allocate nothing: buffers come from the caller. So they are compiled without reference
  counting, whose atomic operations around every helper call would cost more than processing a short
  value.
- A `kernel` is called from Python. A `helper` is called only from kernels and always inlined. A
  `routine` is a helper that is large or called from many places, and stays a function.
- All compiled code of the package uses these; `kernel_cache` decides how long a compiled kernel
  stays valid.
- Compiling is what a first run on a machine pays for, so each function is compiled once for the
  types that it is called with: numba would compile it again for every constant among a call's
  arguments, though inlining gives LLVM the same constant.
- The first function that is compiled in a process is announced in the log, level INFO: a run that
  takes some seconds longer than all later ones says why. The command line shows this line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from numba import njit, types
from numba.core import event as numba_events
from numba.core.dispatcher import Dispatcher

from cdc_pipeline.binlog.native import kernel_cache

__all__ = ["COMPILING", "Integer", "helper", "kernel", "routine"]

kernel_cache.install()

_njit: Any = njit  # its type stub does not know all of its options
_log = logging.getLogger(__name__)


class _Announcement(numba_events.Listener):
    def __init__(self) -> None:
        self._is_made = False

    def on_start(self, event: Any) -> None:
        name = event.data["dispatcher"].py_func.__module__
        if not self._is_made and name.startswith("cdc_pipeline."):
            self._is_made = True
            _log.info(COMPILING)

    def on_end(self, event: Any) -> None:
        """Ignore it."""


_register: Any = numba_events.register
_register("numba:compile", _Announcement())

COMPILING: Final = (
    "compiling the decoder for this machine: up to 20 seconds of CPU; each part once for each "
    "version of this package"
)

# A Python int outside; a machine integer inside, of the width that casts in the code give it.
Integer: TypeAlias = Any


def _without_constants(dispatcher: Any) -> None:
    """Resolve calls of `dispatcher` by the types of their arguments alone."""
    resolve = dispatcher.get_call_template

    def by_types(arguments: Any, named: Any) -> Any:
        plain = {name: types.unliteral(value) for name, value in named.items()}  # type: ignore[no-untyped-call]
        return resolve(tuple(map(types.unliteral, arguments)), plain)

    dispatcher.get_call_template = by_types


def _decorator(**options: bool) -> Callable[[Any], Any]:
    compiled = _njit(nogil=True, _nrt=False, no_cfunc_wrapper=True, **options)

    def decorate(function: Any) -> Any:
        made = compiled(function)
        if isinstance(made, Dispatcher):  # not with NUMBA_DISABLE_JIT
            dispatcher: Any = made  # its type stub does not know its cache
            dispatcher._cache = kernel_cache.KernelCache(function)
            _without_constants(made)
        return made

    return decorate


kernel: Final = _decorator()
routine: Final = _decorator(no_cpython_wrapper=True)
helper: Final = _decorator(no_cpython_wrapper=True, forceinline=True)
