"""Find what keeps a pipeline from working, or will cause trouble later.

Rules:
- Each check is small and has a name. It states what was expected, what was got, and the exact
  statement that fixes it.
- A check that fails is a finding and not a crash. A check whose requirements are missing (an
  unreachable server) is left out, and a note says so. Everything else is examined all the same.
- Nothing is changed: the examination only writes scratch files in the lake, and removes them. It
  starts no JVM unless requested.
- Conditions that a run checks are examined with the run's own code; a check here adds severity and
  statement.
- Secrets are in no finding, whatever its text came from.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from pydantic import BaseModel, SecretStr

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import (
    CdcError,
    MissingGrantError,
    ReplicaIdError,
    ServerSettingError,
    ServerUnreachableError,
)
from cdc_pipeline.operations.doctor import (
    archive,
    grants,
    lake,
    local,
    retention,
    server,
    state,
    tables,
)
from cdc_pipeline.operations.doctor.context import Check, Context, NotThereError
from cdc_pipeline.operations.doctor.diagnosis import (
    AREAS,
    Area,
    Diagnosis,
    Finding,
    Verdict,
    in_order,
    note,
    ok,
    warning,
)
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.text.hide import hide
from cdc_pipeline.text.server_messages import said_by

__all__ = ["Diagnosis", "Finding", "examine"]

# The order matters: later checks use what earlier ones opened.
_OF_EVERY_SOURCE: Final = (*local.CHECKS, *lake.CHECKS, *state.CHECKS)
_OF_SERVERS: Final = (
    server.OPENING,
    *grants.CHECKS,
    *server.CHECKS,
    *tables.CHECKS,
    *retention.CHECKS,
)
# Already reported, with its statement, by the checks of server and grants.
_REFUSALS: Final = (MissingGrantError, ServerSettingError, ReplicaIdError)
_SECRET_LENGTH_MIN: Final = 6


def examine(
    config: PipelineConfig,
    *,
    cursors: CursorStore | None,
    every_s: float | None = None,
    every_reason: str = "",
    with_spark: bool = False,
    areas: Collection[Area] = AREAS,
    found_before: Sequence[Finding] = (),
) -> Diagnosis:
    """Examine a pipeline; raises nothing that a check can meet.

    `cursors`: None if they could not be opened: the lake's last cut is used; `every_s`: longest
    time between two runs, None if unknown; `areas`: of the others only what keeps these from
    being examined is reported; `found_before`: findings of the caller's own, for the diagnosis.
    """
    began_s = time.monotonic()
    context = Context(config, cursors, every_s=every_s, every_reason=every_reason)
    findings = list(found_before)
    absent: dict[str, list[Check]] = {}
    checks = [
        *_OF_EVERY_SOURCE,
        *(archive.CHECKS if config.source.kind == "archive" else _OF_SERVERS),
        *state.PLAN_CHECKS,
        *(lake.SPARK_CHECKS if with_spark else ()),
    ]
    try:
        for check in checks:
            if check.area in areas or check.opens:
                findings += [
                    one
                    for one in _run_check(check, context, findings, absent)
                    if check.area in areas or one.severity == "error"
                ]
    finally:
        context.close()
    for name, skipped in absent.items():
        names = ", ".join(dict.fromkeys(check.name for check in skipped))
        needs = "they need" if len(skipped) > 1 else "it needs"
        verdict = note(f"skipped, because {needs} {name}: {names}")
        findings.append(Finding(area=skipped[0].area, check="not examined", **verdict.model_dump()))
    secrets = _secrets(config)
    shown = [_without_secrets(finding, secrets) for finding in findings]
    return Diagnosis(
        source=config.name, findings=in_order(shown), seconds=time.monotonic() - began_s
    )


def _run_check(
    check: Check, context: Context, before: Sequence[Finding], absent: dict[str, list[Check]]
) -> Iterator[Finding]:
    said: list[Verdict] = []
    try:
        for one in check.run(context):
            said.append(one)  # one by one: findings before a failure are kept
        if not said and check.fine:
            said.append(ok(check.fine))
    except NotThereError as missing:
        absent.setdefault(str(missing), []).append(check)
    except CdcError as error:
        verdict = Verdict.from_error(error)
        refused = any(
            one.severity == "error" and one.area in ("server", "grants") for one in before
        )
        if isinstance(error, _REFUSALS) and check.area != "grants" and refused:
            needed = "a server with the required grants and log settings"
            absent.setdefault(needed, []).append(check)
        elif not any(
            one.what == verdict.what or one.next_step == verdict.next_step != "" for one in before
        ):
            said.append(verdict)
        if isinstance(error, ServerUnreachableError) and check.area not in ("lake", "local"):
            context.forget_source()
    except Exception as error:  # an unexpected error of one check must not end the examination
        step = "check this by hand, and please report the failure"
        said.append(warning("this check itself failed", got=said_by(error), next_step=step))
    for one in said:
        yield Finding(area=check.area, check=check.name, **one.model_dump())


def _secrets(value: object) -> set[str]:
    if isinstance(value, SecretStr):
        # So short a text occurs in other words by chance, such as the account's own name.
        text = value.get_secret_value()
        return {text} if len(text) >= _SECRET_LENGTH_MIN else set()
    if isinstance(value, BaseModel):
        return set().union(*(_secrets(getattr(value, name)) for name in type(value).model_fields))
    if isinstance(value, dict):
        return set().union(*map(_secrets, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return set().union(*map(_secrets, value))
    return set()


def _without_secrets(finding: Finding, secrets: Collection[str]) -> Finding:
    names = ("what", "expected", "got", "next_step")
    return finding.model_copy(
        update={name: hide(getattr(finding, name), secrets) for name in names}
    )
