"""Which worker of pytest-xdist takes which tests, and when: two cores are to be busy all the time, with no tail at the end."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has none

SPREAD = frozenset(
    {
        *("tests/house/test_clock.py", "tests/house/test_drain.py", "tests/house/test_embedded_postgres.py"),
        *("tests/house/test_hooks.py", "tests/house/test_kill.py", "tests/house/test_shutdown.py"),
        *("tests/house/test_start.py", "tests/house/test_two_processes.py", "tests/redis/test_cases.py"),
        *("tests/redis/test_kill.py", "tests/redis/test_operator.py", "tests/redis/test_rulings.py"),
    }
)
"""Slow files whose tests share nothing: each goes to whichever worker is free, so that none is busy long after the others."""


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # for the same reason
    """A file stays with one worker, since its tests may share a house; but for those of SPREAD. They go as they come."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """What has to stay with one worker: the file, or the test alone."""
    file = nodeid.partition("::")[0]
    return nodeid if file in SPREAD else file


def in_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """Files, the largest first, and between them the tests that go alone: these mostly wait, those mostly compute."""
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        units.setdefault(scope(item.nodeid), []).append(item)
    files = sorted((unit for name, unit in units.items() if name.endswith(".py")), key=len, reverse=True)
    alone = [unit for name, unit in reversed(units.items()) if not name.endswith(".py")]  # those of Redis are the longest
    none: list[pytest.Item] = []
    return [item for pair in zip_longest(files, alone, fillvalue=none) for unit in pair for item in unit]


def scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """For the hook of this name. xdist's own order, the largest first, would leave all that wait to the end."""
    config.option.loadscopereorder = False
    return Scheduling(config, log)
