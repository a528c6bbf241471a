"""Answers that stay good for a moment: asked of the database once, however many ask at the same time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import attrs
import trio

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@attrs.frozen
class _Entry(Generic[V]):
    asked_at: float
    value: V


class BriefMemory(Generic[K, V]):
    """Remembers up to `entries_max` answers for `seconds`, counted from when they were asked for, not from when they came."""

    def __init__(self, *, seconds: float, entries_max: int) -> None:
        self._seconds = seconds
        self._entries_max = entries_max
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._asking: dict[K, trio.Lock] = {}
        self._era = 0

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer for `key`, remembered or asked for. Those who ask at the same time wait for the one who is asking."""
        entry = self._fresh(key)
        if entry is not None:
            return entry.value
        lock = self._asking.setdefault(key, trio.Lock())
        try:
            async with lock:
                entry = self._fresh(key)
                if entry is None:
                    entry = await self._ask(key, ask)
                return entry.value
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._asking.pop(key, None)

    def forget(self) -> None:
        """Forgets everything at once, and whatever is being asked at this moment will not be remembered."""
        self._entries.clear()
        self._era += 1

    def _fresh(self, key: K) -> _Entry[V] | None:
        entry = self._entries.get(key)
        if entry is None or trio.current_time() - entry.asked_at >= self._seconds:
            return None
        return entry

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> _Entry[V]:
        era, asked_at = self._era, trio.current_time()
        entry = _Entry(asked_at, await ask())
        if era == self._era:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            if len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
        return entry
