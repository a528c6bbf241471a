"""Whose turn it is: pending work goes first, but at least once a second overdue work does (R9)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

SECONDS_BETWEEN_TURNS: Final = 1.0
SCOPES_MAX: Final = 10_000


class OverdueTurns:
    """Remembers, for each (endpoint, queues), when due and lapsed todos last went before pending ones.

    A hint with a bound: the scope that was asked longest ago is forgotten first, and then only gets its turn early. It is
    shared by the threads of the claim lanes, hence the lock; it knows no todo.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: OrderedDict[Hashable, float] = OrderedDict()

    def overdue_first(self, scope: Hashable) -> bool:
        """Whether this claim of `scope` must look at overdue todos first; asking takes the turn."""
        now = self._clock()
        with self._lock:
            last = self._last.get(scope)
            if last is not None and now - last < SECONDS_BETWEEN_TURNS:
                return False
            self._last[scope] = now
            self._last.move_to_end(scope)
            if len(self._last) > SCOPES_MAX:
                self._last.popitem(last=False)
            return True
