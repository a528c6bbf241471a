"""Clients that go away while nobody reads from them: one look for all, by the kernel.

A claim that waits holds nothing but its place. A task beside each, only to hear its client go, would be a third of what ten
thousand of them cost in memory; here they share one, and what a client sends meanwhile stays in its socket.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio

TOLD_AT_ONCE_MAX: Final = 1_000


class HangUps:
    """Tells of each watched socket, once, that its other side has closed it or failed."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Callable[[], None]] = {}

    @contextmanager
    def watching(self, descriptor: int, hung_up: Callable[[], None]) -> Iterator[None]:
        """While inside, `hung_up` is called when the client is gone; soon if it is already."""
        self._epoll.register(descriptor, select.EPOLLRDHUP)  # errors and hang-ups of both sides come unasked
        self._watched[descriptor] = hung_up
        try:
            yield
        finally:
            # A socket of our own that was closed meanwhile is not watched any more, and its number may be another's by now.
            if self._watched.get(descriptor) is hung_up:
                self._forget(descriptor)

    async def run(self) -> None:
        """Waits and tells; ends by cancellation."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                for descriptor, _ in self._epoll.poll(0, TOLD_AT_ONCE_MAX):
                    self._forget(descriptor)()
        finally:
            self._epoll.close()

    def _forget(self, descriptor: int) -> Callable[[], None]:
        with suppress(OSError, ValueError):
            self._epoll.unregister(descriptor)
        return self._watched.pop(descriptor)
