"""Decorators that compile kernels.

Rules:
- Kernels allocate nothing: buffers come from the caller. So they are compiled without reference
  counting, whose atomic operations around every helper call would cost more than processing a short
  value.
- A `kernel` is called from Python. A `helper` is called only from kernels and always inlined. A
  `routine` is a helper that is large or called from many places, and stays a function.
- All compiled code of the package uses these; `kernel_cache` decides how long a compiled kernel
  stays valid.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from numba import njit

from cdc_pipeline.binlog.native import kernel_cache

__all__ = ["Integer", "helper", "kernel", "njit", "routine"]

kernel_cache.install()

# A Python int outside; a machine integer inside, of the width that casts in the code give it.
Integer: TypeAlias = Any

_njit: Any = njit  # its type stub does not know all of its options

kernel: Final = _njit(cache=True, nogil=True, _nrt=False)
routine: Final = _njit(
    cache=True, nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
)
helper: Final = _njit(
    cache=True,
    nogil=True,
    _nrt=False,
    forceinline=True,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
)
