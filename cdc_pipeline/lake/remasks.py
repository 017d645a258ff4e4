"""Which masks came to targets after their rows, so that what their older files hold can be told.

_cdc/<source>/remasks/<id>.json               put once, before the targets are suspended
_cdc/<source>/remasks/<id>.certificate.json   what still holds old values until when; without
                                              it, the new rows are not known to be in place
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.erasures import NameBound, Requests, Searched
from cdc_pipeline.lake.paths import LakePaths


class Remask(FrozenModel):
    """`masks`: of each target's rows before, by column; without salts, as all that is recorded.
    `names`: of each source table, what it was called, as in `Erasure`.
    """

    version: Literal[1] = 1
    remask_id: str
    source: str
    table: str
    masks: dict[str, dict[str, str]]
    names: dict[str, dict[str, NameBound]] = Field(default_factory=dict)
    who: str = ""
    why: str = ""


class RemaskCertificate(Searched):
    """`masks`: of each target's rows now."""

    remask_id: str
    masks: dict[str, dict[str, str]]


def remasks_of(paths: LakePaths) -> Requests[Remask, RemaskCertificate]:
    return Requests(paths.state / "remasks", Remask, RemaskCertificate)
