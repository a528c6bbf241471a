"""Who waits for work, and who is woken by a ring (R25). All of it synchronous; the doorbell and the claims do the waiting.

A ring wakes the waiter of its endpoint who has waited longest and may claim the todo; one that then does not claim passes
the wake on. Once a second the oldest waiter of each scope looks for itself: a lost ring costs a second, never work, and a
thousand waiters of one queue cost one look a second.
"""

from __future__ import annotations

from uuid import UUID

import attrs
import trio

from switchboard.todo import Ring


@attrs.define(kw_only=True, eq=False)
class Waiter:
    """One waiting claim: its endpoint, its queues (empty: any), the owner it claims for, and the bell it hears."""

    endpoint_id: UUID
    queues: frozenset[str]
    owner: str
    bell: trio.Event = attrs.field(factory=trio.Event)
    heard: Ring | None = None

    def may_claim(self, ring: Ring) -> bool:
        """Whether a claim of this waiter could be handed the todo that rang."""
        return (not self.queues or ring.queue in self.queues) and ring.assignee in (None, self.owner)


class WaitingRoom:
    """The waiters, by endpoint first and in order of arrival within it."""

    def __init__(self) -> None:
        self._by_endpoint: dict[UUID, dict[Waiter, None]] = {}
        self.closed = False

    def enter(self, waiter: Waiter) -> None:
        """Sits down last. Enter before the first look at the database, so that no ring falls between the two."""
        self._by_endpoint.setdefault(waiter.endpoint_id, {})[waiter] = None

    def leave(self, waiter: Waiter) -> None:
        """Forgets the waiter at once. A ring that it has not acted upon yet goes to the next one."""
        waiters = self._by_endpoint[waiter.endpoint_id]
        del waiters[waiter]
        if not waiters:
            del self._by_endpoint[waiter.endpoint_id]
        if waiter.heard is not None:
            self.ring(waiter.heard)

    def has_waiters(self, endpoint_id: UUID) -> bool:
        """Whether anybody of this endpoint waits."""
        return endpoint_id in self._by_endpoint

    def ring(self, ring: Ring) -> None:
        """Wakes the oldest waiter that may claim this todo and has not been woken yet, if there is one."""
        for waiter in self._by_endpoint.get(ring.endpoint_id, ()):
            if not waiter.bell.is_set() and waiter.may_claim(ring):
                waiter.heard = ring
                waiter.bell.set()
                return

    def look_for_yourselves(self) -> None:
        """Wakes the oldest waiter of each (endpoint, queues), for rings that were lost or came from another process."""
        for waiters in self._by_endpoint.values():
            looked: set[frozenset[str]] = set()
            for waiter in waiters:
                if waiter.queues not in looked:
                    looked.add(waiter.queues)
                    waiter.bell.set()

    def wake_all(self, endpoint_id: UUID) -> None:
        """Wakes everybody of one endpoint: its credential may have ended, and each looks to its own."""
        for waiter in self._by_endpoint.get(endpoint_id, ()):
            waiter.bell.set()

    def close(self) -> None:
        """The house closes: everybody looks one last time and goes."""
        self.closed = True
        for waiters in self._by_endpoint.values():
            for waiter in waiters:
                waiter.bell.set()

    def __len__(self) -> int:
        return sum(len(waiters) for waiters in self._by_endpoint.values())
