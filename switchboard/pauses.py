"""How long a client waits before it asks a house once more: doubling, jittered, bounded, and never less than it is told."""

from __future__ import annotations

import random
from typing import Final

from switchboard.errors import QueueError, RateLimited, SwitchboardError, Unavailable

PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 5.0
RETRY_AFTER_SECONDS_MAX: Final = 60.0
"""More than this is not waited for at a time, whatever the house says: it may be back sooner."""


class Unreachable(SwitchboardError):
    """No whole answer came: no connection, no answer in time, or a connection that broke. It may have been done or not."""


def passes(error: SwitchboardError) -> bool:
    """Whether the same call may well succeed a little later: nothing is known to be wrong with it."""
    return isinstance(error, Unreachable | RateLimited) or (isinstance(error, QueueError) and error.status >= 500)


class Pauses:
    """The pauses between the repetitions of one call."""

    def __init__(self) -> None:
        self._seconds = PAUSE_SECONDS_MIN

    def after(self, error: SwitchboardError | None = None) -> float:
        """Seconds to wait now; `error` may carry a Retry-After, which is honoured."""
        seconds = self._seconds * random.uniform(0.5, 1.0)  # noqa: S311 - so that many clients do not knock at once
        self._seconds = min(self._seconds * 2, PAUSE_SECONDS_MAX)
        told = error.retry_after_seconds if isinstance(error, Unavailable | RateLimited) else 0
        return max(seconds, min(told, RETRY_AFTER_SECONDS_MAX))
