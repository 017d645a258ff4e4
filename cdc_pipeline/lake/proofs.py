"""How far the rolling proof has come in each table: ``proofs.json`` in the source's state folder.

Rules:
- It is written after each range, whole, by the holder of ``verify.lock``: a run that is killed
  repeats a range and never skips one. Without the file the proof begins with the first range.
- *Proved through* is where the last whole pass began. Each range was equal at a place of its own
  behind that, and all rows of the log since then were applied exactly once. What another program
  did behind the pass's place, the next pass finds.
"""

from __future__ import annotations

from math import ceil
from typing import Final, Literal

from pydantic import Field, TypeAdapter

from cdc_pipeline.config.pipeline_config import EachRunConfig
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.run_notes import NoteFile
from cdc_pipeline.position.cursor import ResumePlace

# A range costs about as much as these, however few rows it has.
ROWS_PER_RANGE_MIN: Final = 100


class TablePass(FrozenModel):
    """One pass through a table. `place`, `began_at_us`: of its beginning; `rows`: compared so far;
    `counts`, `keys`: what differs, by kind, and some of the keys; `unsettled`: keys that changed
    whenever they were read, of which nothing is proved.
    """

    place: ResumePlace
    began_at_us: int
    rows: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    keys: tuple[str, ...] = ()
    unsettled: int = 0


class TableProof(FrozenModel):
    """Attributes:
    identity, layout: of the target and its key, and of the key at the server; with others a
        pass begins again.
    known_since_us: when the proof first saw the table.
    walk: what leads: the rows of the server by ranges, then the keys of the lake.
    after, lake_after: the last key that is done, as SQL literals, and as Arrow's stream.
    current, last: the pass under way, and the last whole one that settled all keys, or that found
        differences.
    unsettled: keys that the newest whole pass left open.
    reason, given_up: why it is not proved: `verify` does not compare it; or its last comparison
        could not be made, which is tried again in its turn. "" if it is.
    done_at_us: when its turn ended last.
    """

    identity: str
    known_since_us: int
    layout: str = ""
    walk: Literal["source", "lake"] = "source"
    after: tuple[str, ...] | None = None
    lake_after: str = ""
    current: TablePass | None = None
    last: TablePass | None = None
    unsettled: int = 0
    reason: str = ""
    given_up: str = ""
    done_at_us: int = 0

    @property
    def differing(self) -> TablePass | None:
        """What the last whole pass found, and so far the next one, which has disproved nothing."""
        found = [one for one in (self.last, self.current) if one is not None and one.counts]
        if len(found) < 2:
            return found[0] if found else None
        last, current = found
        counts = {k: max(last.counts.get(k, 0), n) for k, n in current.counts.items()}
        keys = tuple(dict.fromkeys(last.keys + current.keys))
        return last.model_copy(update={"counts": last.counts | counts, "keys": keys})

    @property
    def proved(self) -> TablePass | None:
        """The last whole pass, if all was equal."""
        return None if self.last is None or self.last.counts else self.last

    def is_stale(self, now_us: int, age_max_s: float) -> bool:
        since_us = self.known_since_us if self.last is None else self.last.began_at_us
        return now_us - since_us > age_max_s * 1e6

    @property
    def unproved(self) -> str:
        """Why it is not proved; "" if it is."""
        if self.reason or self.given_up:
            return self.reason or self.given_up
        open_keys = max(self.unsettled, self.current.unsettled if self.current else 0)
        return f"{open_keys:,} keys changed whenever they were read" if open_keys else ""

    @property
    def summary(self) -> str:
        """On one line, without keys (K26)."""
        parts = []
        if self.differing is not None:
            counts = ", ".join(
                f"{number:,} {kind}" for kind, number in self.differing.counts.items()
            )
            parts.append(f"differs from the server: {counts}")
        if self.unproved:
            parts.append(f"not proved: {self.unproved}")
        if self.proved is not None:
            parts.append(f"proved through {self.proved.place}")
        if self.current is not None:
            parts.append(f"{self.current.rows:,} rows of a pass since {self.current.place}")
        return "; ".join(parts) or "not begun"


class Proofs(FrozenModel):
    """`tables`: by target; `failed_runs`: in a row; `failure`: of the last of them; `rows_per_run`:
    that a run compares in its budget, `rows_at_once`: that one comparison has in its seconds; 0 if
    unknown.
    """

    tables: dict[str, TableProof] = Field(default_factory=dict)
    failed_runs: int = 0
    failure: str = ""
    rows_per_run: int = 0
    rows_at_once: int = 0


class ProofReport(FrozenModel):
    """What one run has proved. `rows`: that were compared; `tables`: those that it compared, that
    differ, or whose last whole pass is too old; `warnings`: what a person should look at.
    """

    rows: int = 0
    seconds: float = 0.0
    tables: dict[str, TableProof] = Field(default_factory=dict)
    failure: str = ""
    failed_runs: int = 0
    warnings: tuple[str, ...] = ()
    suspended: tuple[str, ...] = ()


def proof_file(paths: LakePaths) -> NoteFile[Proofs]:
    return NoteFile(
        paths.state / "proofs.json",
        TypeAdapter(Proofs),
        absent=Proofs(),
        loss="the proof begins again",
    )


def runs_of_a_pass(budget: EachRunConfig, proofs: Proofs, rows: dict[str, int]) -> int | None:
    """The most runs that a pass through tables of so many rows takes; None if unknown yet. Rows
    are read twice, led by the server and by the lake, and a last range may be short in each walk.
    """
    per_run = proofs.rows_per_run if budget.rows is None or budget.seconds else budget.rows
    cost = sum(2 * count + 4 * ROWS_PER_RANGE_MIN for count in rows.values())
    return ceil(cost / per_run) if per_run else None
