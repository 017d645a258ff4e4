"""The facts for the decision table of a start, each queried from the source only when needed."""

from __future__ import annotations

from functools import cached_property

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import GtidConfig, Start
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start.types import Overlap, StartRules, StartSource


class StartContext:
    """The facts for one decision."""

    def __init__(
        self,
        *,
        cursor: CursorState | None,
        start: Start,
        source: StartSource,
        rules: StartRules,
        overlap: Overlap | None,
    ) -> None:
        self.history = cursor
        self.primary_start = start
        self.source = source
        self.rules = rules
        self.overlap = overlap

    @property
    def cursor(self) -> CursorState:
        """The cursor; rows that need it apply only if there is one."""
        assert self.history is not None
        return self.history

    @cached_property
    def identity(self) -> ServerIdentity:
        return self.source.identity

    @cached_property
    def end(self) -> Position:
        return self.source.end_position()

    @cached_property
    def uses_gtids(self) -> bool:
        return self.source.uses_gtids

    # -- history -----------------------------------------------------------------------------------

    @property
    def same_server(self) -> bool:
        return self.cursor.identity.same_server(self.identity)

    @property
    def same_flavor(self) -> bool:
        return self.cursor.flavor == self.identity.flavor

    @property
    def same_address(self) -> bool:
        """Whether the cursor was written through the connected address."""
        return self.cursor.address == self.identity.address

    @property
    def goes_by_gtid(self) -> bool:
        """Whether the cursor has a GTID set and the source uses GTIDs (P3)."""
        return bool(self.cursor.gtid_set) and self.uses_gtids

    @property
    def switched(self) -> bool:
        """Whether the cursor is from one configured address and the other is connected (P6)."""
        addresses = self.rules.addresses
        return (
            not self.same_address
            and self.cursor.address in addresses
            and self.identity.address in addresses
        )

    @property
    def is_only_address(self) -> bool:
        """Whether no standby is configured and the cursor is from the only address (P5)."""
        return self.rules.addresses == (self.identity.address,) and self.same_address

    @property
    def is_purged(self) -> bool:
        """Whether the cursor's journal was removed while the numbering continued."""
        names = [info.journal for info in self.source.journals()]
        journal = self.cursor.journal
        if (
            not names
            or journal in names
            or journal.rpartition(".")[0] != names[-1].rpartition(".")[0]
        ):
            return False
        return journal_number(journal) < journal_number(names[-1])

    # -- configuration -----------------------------------------------------------------------------

    @property
    def at_standby(self) -> bool:
        addresses = self.rules.addresses
        return len(addresses) > 1 and self.identity.address == addresses[1] != addresses[0]

    @property
    def configured(self) -> Start | None:
        """The start configured for the connected server; None for a standby without one.

        A GTID set of the primary's start means the same on its standby (P3); journals, offsets
        and words do not (P4).
        """
        if not self.at_standby:
            return self.primary_start
        if self.rules.standby_start is not None:
            return self.rules.standby_start
        return self.primary_start if isinstance(self.primary_start, GtidConfig) else None
