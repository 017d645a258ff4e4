"""Overlap with the log of another server after a switch without GTIDs (K7).

Rules:
- Until a transaction appears that was committed later than everything applied before the switch, no
  cut is published and no cursor moved: a cut there would go back in time.
- A target that keeps every change must not get one twice there, unless a person accepts that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc_pipeline.config.modes import keeps_every_change
from cdc_pipeline.errors import OverlapUndecidedError, PositionError
from cdc_pipeline.pipeline.capture.progress import Progress
from cdc_pipeline.pipeline.targets.targets import Target


class Overlap:
    """Whether a stretch of the log is still in the overlap.

    Args:
        until_us: commit time of what was applied last; None if there is no overlap.
        accepted: targets that may keep changes of the overlap twice.
    """

    def __init__(self, *, until_us: int | None, accepted: Collection[str]) -> None:
        self._until_us = until_us
        self._accepted = frozenset(accepted)

    @property
    def is_held(self) -> bool:
        return self._until_us is not None

    def reach(self, commit_us: int) -> None:
        """Leave the overlap if a transaction that was committed at this time lies after it."""
        if self._until_us is not None and commit_us > self._until_us:
            self._until_us = None

    def check_changes(self, targets: Sequence[Target], source: str, *, first_us: int = -1) -> None:
        """Refuse changes that a target which keeps every change might get twice.

        `first_us`: commit time of the first of them; -1 not known.

        Raises OverlapUndecidedError if they lie in the overlap.
        """
        if self._until_us is None or first_us > self._until_us:
            return
        undecided = [
            target.name
            for target in targets
            if keeps_every_change(target.spec.mode, target.spec.key)
            and target.name not in self._accepted
        ]
        if undecided:
            names = ", ".join(undecided)
            raise OverlapUndecidedError(
                "changes that may have been applied before the switch to this server "
                "would be stored twice",
                targets=tuple(undecided),
                table=source,
                setting="accept.overlap",
                expected="a log that matches the applied changes up to the switch, or a decision",
                got=f"an overlap without GTIDs, in {names}",
                next_step=f"list {names} in accept.overlap to keep these changes, perhaps "
                "twice; or start again",
            )

    def check_passed(self, place: Progress) -> None:
        """Raise PositionError if the run would publish inside the overlap: the log has no
        transaction yet that is later than what was applied before the switch.
        """
        if self._until_us is None:
            return
        at = place.position
        raise PositionError(
            "the new server's log has nothing later than the changes applied before the "
            "switch: a cut here would go back in time",
            journal=at.journal,
            offset=at.offset,
            expected=f"a transaction committed after {self._until_us} (microseconds since 1970)",
            got=f"the last one was committed at {place.source_time_us}",
            next_step="run again when the server has written later transactions; if it is a "
            "replica, wait until it has caught up; nothing was published",
        )
