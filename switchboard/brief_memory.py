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


@attrs.define(eq=False)
class _Question(Generic[V]):
    """A question that somebody is asking, for those who wait for its answer."""

    over: trio.Event = attrs.field(factory=trio.Event)
    entry: _Entry[V] | None = None
    failure: Exception | None = None


class BriefMemory(Generic[K, V]):
    """Remembers up to `entries_max` answers for `seconds`, counted from when they were asked for, not from when they came."""

    def __init__(self, *, seconds: float, entries_max: int) -> None:
        self._seconds = seconds
        self._entries_max = entries_max
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._questions: dict[K, _Question[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer for `key`, remembered or asked for.

        Those who want the same answer at the same time share it, and share its failure: a database that is slow to say
        no says it once, and not to each of them in turn.
        """
        while True:
            entry = self._entries.get(key)
            if entry is not None and trio.current_time() - entry.asked_at < self._seconds:
                return entry.value
            question = self._questions.get(key)
            if question is None:
                return await self._ask(key, ask)
            await question.over.wait()
            if question.failure is not None:
                raise question.failure
            if question.entry is not None:
                return question.entry.value
            # The one who asked was cancelled; now it is our turn.

    def forget(self) -> None:
        """Forgets everything at once, and whatever is being asked at this moment will not be remembered."""
        self._entries.clear()
        self._questions.clear()

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        question: _Question[V] = _Question()
        self._questions[key] = question
        asked_at = trio.current_time()
        try:
            question.entry = entry = _Entry(asked_at, await ask())
        except Exception as failure:
            question.failure = failure
            raise
        finally:
            current = self._questions.get(key) is question  # not after a forget()
            if current:
                del self._questions[key]
            question.over.set()
        if current:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            if len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
        return entry.value
