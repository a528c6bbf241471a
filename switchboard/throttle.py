"""A bound on how often the same kind of thing is said."""

from __future__ import annotations

import attrs
import trio

# Enough to see a pattern, few enough that a stranger cannot fill the disk with our complaints about it.
BURST_MAX = 10
REFILL_PER_SECOND = 1.0


@attrs.define(eq=False)
class Throttle:
    """A bucket of BURST_MAX words that fills by REFILL_PER_SECOND, on Trio's clock."""

    _words: float = attrs.field(init=False, default=float(BURST_MAX))
    _filled_at: float = attrs.field(init=False, factory=trio.current_time)
    _suppressed: int = attrs.field(init=False, default=0)

    def take(self) -> int | None:
        """Take a word: how many were refused since the last one, or None if this one is refused too."""
        now = trio.current_time()
        self._words = min(BURST_MAX, self._words + (now - self._filled_at) * REFILL_PER_SECOND)
        self._filled_at = now
        if self._words < 1:
            self._suppressed += 1
            return None
        self._words -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
