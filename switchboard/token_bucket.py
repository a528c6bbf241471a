"""A bound on how often something may happen: a rate that lasts, and a burst above it."""

from __future__ import annotations

import math

import attrs


@attrs.define(kw_only=True)
class TokenBucket:
    """Holds up to `burst` tokens and gains `rate_per_second`; each thing that happens takes one."""

    rate_per_second: float
    burst: float
    _tokens: float = attrs.field(init=False)
    _at: float = attrs.field(init=False, default=-math.inf)

    @_tokens.default
    def _full(self) -> float:
        return self.burst

    def take(self, now: float) -> float:
        """Takes a token and returns 0; or returns in how many seconds there will be one. `now` is on any one clock."""
        if self._at > -math.inf:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate_per_second)
        self._at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self.rate_per_second
        self._tokens -= 1
        return 0.0
