"""A rate that lasts, and a burst above it."""

from __future__ import annotations

import pytest

from switchboard.token_bucket import TokenBucket


def test_a_burst_and_then_the_rate() -> None:
    """So many at once, then one each time that one has been gained; what is left over says how long to wait."""
    bucket = TokenBucket(rate_per_second=2, burst=3)
    assert [bucket.take(10.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take(10.4) == pytest.approx(0.1)
    assert bucket.take(10.5) == 0
    assert bucket.take(10.5) == pytest.approx(0.5)


def test_a_long_quiet_time_gives_no_more_than_the_burst() -> None:
    """However long."""
    bucket = TokenBucket(rate_per_second=1_000, burst=2)
    bucket.take(0.0)
    assert [bucket.take(1e9) > 0 for _ in range(3)] == [False, False, True]


def test_its_first_use_may_be_at_any_time() -> None:
    """Clocks begin where they like, also below zero."""
    assert TokenBucket(rate_per_second=1, burst=1).take(-5.0) == 0
