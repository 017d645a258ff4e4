"""The conversations that are recorded: those of the network campaign, the whole examination, and
the list of tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.operations.discover import discover
from cdc_pipeline.operations.doctor import examine
from cdc_pipeline.position.cursor import MemoryCursorStore
from tests.campaigns.network import conversations as network
from tests.campaigns.network.conversations import Rows, Shop

Name = Literal["capture", "capture_by_gtid", "load", "rows", "doctor", "examine", "discover"]
NAMES: Final[tuple[Name, ...]] = get_args(Name)
# Small, so that a lie about a length is noticed at once.
_LIMITS: Final = {"packet_bytes_max": 1 << 24, "unpacked_bytes_max": 1 << 24}


class CheckFailedError(Exception):
    """An examination met an error that is not ours."""


@dataclass
class Play:
    """One conversation; see `network.Play`. `tls`: mode of its connections; `source`: what differs
    in its section of the source.
    """

    shop: Shop
    name: Name
    folder: Path
    tls: str = "off"
    source: dict[str, Any] = field(default_factory=dict)

    def run(self, port: int) -> Rows:
        """Play it through a port; the rows at its end. Raises Exception: as the pipeline ends."""
        shop = Shop(
            self.shop.server,
            self.shop.database,
            {**self.shop.source, **_LIMITS, **self.source},
            self.shop.starts,
            self.shop.schemas,
            self.shop.rows,
        )
        if self.name in network.NAMES:
            return network.Play(shop, self.name, self.tls, self.folder).run(port)
        config = network.Play(shop, "doctor", self.tls, self.folder).config(port)
        return _examined(config, shop) if self.name == "examine" else _discovered(config, shop)


def _examined(config: PipelineConfig, shop: Shop) -> Rows:
    made = examine(
        config,
        cursors=MemoryCursorStore(),
        areas=("server", "grants", "retention", "tables", "state"),
    )
    for finding in made.findings:
        if finding.what == "this check itself failed":
            raise CheckFailedError(f"{finding.check}: {finding.got}")
    return shop.rows


def _discovered(config: PipelineConfig, shop: Shop) -> Rows:
    discover(config).model_dump_json()
    return shop.rows
