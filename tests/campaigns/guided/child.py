"""One target under the fuzzer, in the environment that has it:
``python child.py TARGET [libFuzzer's options and folders]``.

The kernels are plain Python here (NUMBA_DISABLE_JIT=1), so that the fuzzer sees what an input
reaches in them. An exception that is not a CdcError ends the process; libFuzzer keeps the input.
"""

from __future__ import annotations

import sys
import warnings

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["cdc_pipeline"]):
    from tests.campaigns.guided import targets


def main() -> None:
    name = sys.argv.pop(1)
    # Plain Python warns of sums of 64 bits that wrap as they are meant to; `test_slow_twins` knows
    # where.
    warnings.simplefilter("ignore", RuntimeWarning)
    atheris.Setup(sys.argv, lambda data: targets.run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
