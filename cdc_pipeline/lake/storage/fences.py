"""Leases that are looked at before each request that changes something below their lake (K16).

A step that lists and then deletes, or reads and then replaces, may be stopped in between for longer
than a lease. So whoever holds one has it checked by the storage itself, before each such request,
and not only before each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class Fences:
    """The leases of a process on the lakes of one bucket. Thread-safe."""

    def __init__(self) -> None:
        self._held: list[tuple[str, str, Callable[[], None]]] = []

    @contextmanager
    def held(self, lake: str, state: str, check: Callable[[], None]) -> Iterator[None]:
        """`check` raises LockError once the lease is lost; it is called, in the context, before
        what a source owns is changed. `state`: key of the folder of its own state; those
        beside it are others'.
        """
        fence = (f"{lake}/", f"{state}/", check)
        self._held.append(fence)
        try:
            yield
        finally:
            self._held.remove(fence)

    def check(self, keys: Iterable[str]) -> None:
        """Raises LockError: a lease that covers a key is lost."""
        if not self._held:
            return
        keys = tuple(keys)
        for lake, state, check in tuple(self._held):
            others = state.rpartition("/")[0].rpartition("/")[0] + "/"  # of all sources
            if any(
                key.startswith(lake) and (key.startswith(state) or not key.startswith(others))
                for key in keys
            ):
                check()
