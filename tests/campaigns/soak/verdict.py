"""Whether a series of measures is flat.

Rules:
- The median of the last third is compared with that of the middle third; the first third is warming
  up. Only growth counts.
- Each measure has a tolerance: a share, and an amount below which nothing counts.
- What is kept by number grows until there are as many, which may take longer than a soak: only what
  exceeds that counts.
- Too few samples prove nothing: then nothing is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

SAMPLES_MIN: Final = 9


@dataclass(frozen=True)
class Tolerance:
    """How much a median may grow from the middle third to the last. `share`: of the middle third's
    median; `amount`: in the measure's own unit; what grows by less is flat. `bound`: in the
    measure's own unit; what is not more is flat.
    """

    share: float
    amount: float
    bound: float = 0


TOLERANCES: Final[Mapping[str, Tolerance]] = {
    "python_rss_mib": Tolerance(0.05, 20),
    "python_objects": Tolerance(0.1, 20_000),
    "python_threads": Tolerance(0, 2),
    "python_system_threads": Tolerance(0, 4),
    "python_descriptors": Tolerance(0, 5),
    "jvm_rss_mib": Tolerance(0.1, 100),
    "jvm_heap_mib": Tolerance(0.1, 20),
    "jvm_other_mib": Tolerance(0.1, 20),
    "jvm_classes": Tolerance(0.1, 1000),
    "jvm_system_threads": Tolerance(0, 10),
    "jvm_descriptors": Tolerance(0, 20),
    "temporary_files": Tolerance(0, 20),
    "temporary_bytes": Tolerance(0.1, 4 << 20),
    "killed_temporary_files": Tolerance(0.1, 20),
    "spill_files": Tolerance(0, 5),
    "spill_bytes": Tolerance(0, 1 << 20),
    # Of the newest 1,000 batches a record each, and two files of the cursor.
    "state_files": Tolerance(0.15, 100, 3_200),
    "state_bytes_a_file": Tolerance(0.15, 4 << 10),
    "delta_log_files": Tolerance(0.15, 500),
    "capture_cpu_ms_a_batch": Tolerance(0.5, 20),
    "capture_ms_a_batch": Tolerance(1, 200),
}


@dataclass(frozen=True)
class Judged:
    """A measure of a source over the whole time."""

    name: str
    middle: float
    last: float
    is_flat: bool

    def __str__(self) -> str:
        word = "flat " if self.is_flat else "GROWS"
        return f"{word} {self.name:26} {self.middle:14,.1f} -> {self.last:14,.1f}"


def judge(samples: Sequence[Mapping[str, float]]) -> list[Judged]:
    found = []
    for name, tolerance in TOLERANCES.items():
        values = [sample[name] for sample in samples if name in sample]
        if len(values) < SAMPLES_MIN:
            continue
        third = len(values) // 3
        middle, last = median(values[third : 2 * third]), median(values[-third:])
        room = max(tolerance.amount, middle * tolerance.share)
        found.append(Judged(name, middle, last, last <= max(middle + room, tolerance.bound)))
    return found
