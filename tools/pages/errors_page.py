"""docs/reference/errors.md, from the classes of errors: what happened and why, and the fix."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from cdc_pipeline import errors
from cdc_pipeline.errors import CdcError, ConfigError
from tools.pages.markdown import made_from, paragraphs

INTRO = """\
# Errors

Errors by their code. An error says at once what happened, where, what was expected, what was found
and, as `next`, what to do; with `--json` it is an object with `error` (the class), `code`, `what`,
`journal`, `offset`, `table`, `setting`, `expected`, `got`, `next_step` and `retryable`.

- *retryable*: the same run can succeed if it is started again unchanged. Dagster does so itself.
- *needs a snapshot*: reading the log again cannot help;
  `cdc-pipeline snapshot SOURCE --table NAME` does.
- *exit code 2*: the configuration or the command is wrong. Every other error exits with 1.
"""
_RULES = re.compile(r" \((?:K\d+|SPEC \w+)(?:, K\d+)*(?:: [^)]*)?\)")


def errors_page() -> str:
    found = [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, CdcError) and error is not CdcError
    ]
    described = [
        "\n".join(_described(error)) for error in sorted(found, key=lambda one: one.code())
    ]
    return "\n".join([INTRO, made_from("cdc_pipeline/errors.py"), *described])


def _described(error: type[CdcError]) -> Iterator[str]:
    meaning, *labelled = (_RULES.sub("", text) for text in paragraphs(error))
    facts = [f"`{error.__name__}`"]
    if error.retryable:
        facts.append("*retryable*")
    if error.needs_snapshot:
        facts.append("*needs a snapshot*")
    if issubclass(error, ConfigError):
        facts.append("*exit code 2*")
    yield f"## {error.code()}\n\n{meaning} ({', '.join(facts)})\n"
    for text in labelled:
        if text.startswith("Fix: "):
            yield text.replace("Fix", "**Fix**", 1)
    yield ""
