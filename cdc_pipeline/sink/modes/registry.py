"""One object per mode. A mode's facts are in `config/modes.py`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.sink.modes.changelog import Changelog
from cdc_pipeline.sink.modes.history import History
from cdc_pipeline.sink.modes.mirror import Mirror
from cdc_pipeline.sink.modes.sink_mode import SinkMode
from cdc_pipeline.sink.modes.soft_delete import SoftDelete

SINK_MODES: Final[Mapping[Mode, SinkMode]] = MappingProxyType(
    {
        "mirror": Mirror(),
        "soft_delete": SoftDelete(),
        "history": History(),
        "changelog": Changelog(),
    }
)
