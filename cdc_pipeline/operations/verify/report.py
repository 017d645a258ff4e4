"""Report of a verification, as plain values for people, Dagster and ``--json``."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.position.cursor import ResumePlace

Status = Literal["equal", "different", "unsettled", "not_compared"]


class Step(NamedTuple):
    target: str
    what: Literal["capturing", "reading", "comparing", "repairing"]
    rows: int = 0


class Difference(FrozenModel):
    """One key that differs. `kind`: ``missing``: not in the lake; ``extra``: the source has no
    such row; ``different``: values differ; ``duplicate``: the lake has the key more than once;
    ``ambiguous``: the source has. `key`: the values that identify the row, as text, hashed if the
    lake has them hashed; `rows`: how many more (missing) or less (extra) the source has; 1 if the
    table has a key.
    """

    kind: str
    key: dict[str, str | None]
    columns: tuple[str, ...] = ()
    rows: int = 1


class ExternalChange(FrozenModel):
    """Commits of other programs in a Delta table, and what they changed (K3). `versions`: of
    these commits, with Delta's names of the operations; `restorable`: the rows of the last cut
    still exist: `--repair` restores them; `counts`: keys by kind, comparing the cut's rows with
    the present ones: ``missing`` were removed, ``extra`` were added.
    """

    versions: dict[int, str] = Field(default_factory=dict)
    what: str
    restorable: bool = False
    counts: dict[str, int] = Field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    restored: bool = False


class Intervals(FrozenModel):
    """Versions of a history (see `checks.check_intervals`)."""

    versions: int
    keys: int
    overlaps: int
    not_ended: int
    gaps: int

    @property
    def is_continuous(self) -> bool:
        return not (self.overlaps or self.not_ended)


class TableVerified(FrozenModel):
    """`status`: ``unsettled``: some keys changed in every round, no key is known to differ;
    `proves`: what equal means for this mode; `cut`, `place`: the last cut that was compared, and
    its place in the source's log; `rows_source`, `rows_lake`, `parts`, `parts_differing`: of the
    first comparison; `rows_equal`: rows of the source that the lake has unchanged; `ranges`: key
    ranges that were read, each in one view; `counts`: keys by kind of difference; `strays`: rows of
    a merged table that belong to none of its source tables; `unreadable`: rows of the source that
    the policies keep out of the lake; `stale`: older images of those in the lake, which no repair
    can fix; `repaired`: keys by action; `repaired_keys`: those that differed before.
    """

    target: str
    sources: tuple[str, ...]
    mode: Mode
    key: tuple[str, ...]
    status: Status
    proves: str = ""
    reason: str = ""
    cut: int = 0
    place: ResumePlace | None = None
    rows_source: int = 0
    rows_lake: int = 0
    rows_equal: int = 0
    ranges: int = 0
    parts: int = 0
    parts_differing: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    unsettled: int = 0
    unsettled_keys: tuple[Difference, ...] = ()
    strays: int = 0
    unreadable: int = 0
    stale: int = 0
    rounds: int = 0
    partial: bool = False
    sampled: bool = False
    intervals: Intervals | None = None
    foreign: ExternalChange | None = None
    repaired: dict[str, int] = Field(default_factory=dict)
    repaired_keys: tuple[Difference, ...] = ()
    repair_batches: tuple[int, ...] = ()
    seconds: float = 0.0


class VerifyReport(FrozenModel):
    source: str
    tables: dict[str, TableVerified] = Field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    spark_started: bool = False

    @property
    def status(self) -> Status:
        """The worst status of the tables: different, then unsettled, then not_compared."""
        statuses = {table.status for table in self.tables.values()}
        order: tuple[Status, ...] = ("different", "unsettled", "not_compared")
        return next((status for status in order if status in statuses), "equal")
