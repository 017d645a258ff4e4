"""What a decoder found in a journal, and what it took."""

from __future__ import annotations

from dataclasses import dataclass


class NotRunError(Exception):
    """A peer that cannot run here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decode of a journal, or of its first part. `changes`: row changes: an insert, an update
    or a delete of one row each; `images`: row images; an update has two. `cells`: values in
    them, NULLs among them; `nulls`: NULLs among them; `cpu_s`: the process's CPU clock for it,
    all threads; `is_whole`: False where only the journal's first changes were decoded.
    """

    changes: int
    images: int
    cells: int
    nulls: int | None
    cpu_s: float
    is_whole: bool = True

    @property
    def per_million_s(self) -> float:
        """CPU-seconds per million changes."""
        return self.cpu_s * 1e6 / self.changes

    def agrees_with(self, other: Decoded) -> bool:
        """Whether both have found the same; of a part only the width of the images can be
        compared."""
        if not (self.is_whole and other.is_whole):
            return self.cells * other.images == other.cells * self.images
        mine, theirs = (
            (self.changes, self.images, self.cells),
            (other.changes, other.images, other.cells),
        )
        return mine == theirs and (
            self.nulls is None or other.nulls is None or self.nulls == other.nulls
        )
