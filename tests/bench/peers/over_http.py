"""The two that are asked over HTTP: the house itself, and the service written by hand on FastAPI."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from switchboard import VERSION
from tests.bench import servers
from tests.bench.ground import Ground
from tests.bench.load import Work
from tests.bench.peers.measuring import CALLERS

HOUSE: Final = "switchboard, over HTTP"
FASTAPI: Final = "FastAPI by hand, over HTTP"
ABOUT: Final = {
    HOUSE: {"version": VERSION, "keeps": "all of the above, behind credentials and bounds", "drops": "nothing of these"},
    FASTAPI: {
        "version": "",
        "keeps": "finished jobs, every attempt, dedup keys, leases",
        "drops": "tenants, retries, dead letters, waiting claims (its clients poll), bounds",
    },
}
OPEN: Final[dict[str, Callable[[Ground], AbstractContextManager[int]]]] = {HOUSE: servers.house, FASTAPI: servers.fastapi}
SECONDS: Final = 2.0


def measure(ground: Ground, name: str) -> dict[str, Any]:
    """One row. Only what the creates left behind is drained."""
    with OPEN[name](ground) as port:

        def rate(work: Work, connections: int) -> float:
            return servers.load_on(port, work, connections=connections, seconds=SECONDS).todos_per_second

        return {
            "enqueue_1": rate("creates", 1),
            "enqueue_64": rate("creates", CALLERS),
            "bulk_100": None,
            "drain": rate("drain", CALLERS),
            "pick_up_p50_ms": None,
            "pick_up_p99_ms": None,
        }
