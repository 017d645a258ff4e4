"""Result of an examination, as plain values for people, Dagster and ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Self, get_args

from cdc_pipeline.errors import CdcError
from cdc_pipeline.frozen_model import FrozenModel

Severity = Literal["ok", "note", "warning", "error"]
Area = Literal["server", "grants", "retention", "tables", "state", "lake", "local"]

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
AREAS: Final[tuple[Area, ...]] = get_args(Area)
EXIT_CODES: Final[dict[Severity, int]] = {"ok": 0, "note": 0, "warning": 1, "error": 2}


class Verdict(FrozenModel):
    """`severity`: error: a pipeline does not work, or will not work soon; warning: it will cause
    trouble later; note: good to know; `expected`, `got`: "" if the sentence says it all;
    `next_step`: the statement or command that fixes it.
    """

    severity: Severity
    what: str
    expected: str = ""
    got: str = ""
    next_step: str = ""

    @classmethod
    def from_error(cls, error: CdcError, severity: Severity = "error") -> Self:
        where = " at ".join(str(part) for part in (error.journal, error.offset) if part is not None)
        places = (where, error.table or "", error.setting or "")
        place = ", ".join(part for part in places if part and part not in error.what)
        return cls(
            severity=severity,
            what=error.what + (f" ({place})" if place else ""),
            expected="" if error.expected is None else str(error.expected),
            got="" if error.got is None else str(error.got),
            next_step=error.next_step or "",
        )


class Finding(Verdict):
    area: Area
    check: str


class Diagnosis(FrozenModel):
    """All findings about a source, by area, the worst of each area first."""

    source: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def worst(self) -> Severity:
        return max(
            (finding.severity for finding in self.findings), key=SEVERITIES.index, default="ok"
        )

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.worst]

    def with_severity(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == severity)


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(
        sorted(
            findings, key=lambda found: (AREAS.index(found.area), -SEVERITIES.index(found.severity))
        )
    )


def ok(what: str) -> Verdict:
    return Verdict(severity="ok", what=what)


def note(what: str, **parts: str) -> Verdict:
    return Verdict(severity="note", what=what, **parts)


def warning(what: str, **parts: str) -> Verdict:
    return Verdict(severity="warning", what=what, **parts)


def error(what: str, **parts: str) -> Verdict:
    return Verdict(severity="error", what=what, **parts)
