"""Is every actor of a house alive? Each is asked for the one thing that only it does."""

from __future__ import annotations

import threading
import time

from tests.house import facts
from tests.houses import Agent, House, wait_until

WITHIN_SECONDS = 8.0
"""Two ticks of a sweep, and the longest pause before a restart (2 s) on top."""
RING_SECONDS_MAX = 3.0


def require_everybody_alive(house: House, agent: Agent, conninfo: str) -> None:
    """Ledger, reaper, retry scheduler and doorbell each do their work, and `/readyz` agrees. No claim helps the sweeps."""
    queue = f"alive-{time.monotonic_ns()}"
    lapsing, failing = agent.push(queue), agent.push(queue)
    held = {todo["id"]: todo for todo in agent.claim(queue=queue, max=2, lease_seconds=3_600)}
    assert set(held) == {lapsing["id"], failing["id"]}
    assert agent.verb("heartbeat", held[lapsing["id"]]).status_code == 200
    assert agent.verb("fail", held[failing["id"]], error="again, later").status_code == 200

    facts.ask(conninfo, "update todos set lease_expires_at = now() - interval '1 second' where id = %s", lapsing["id"])
    facts.ask(conninfo, "update todos set next_retry_at = now() - interval '1 second' where id = %s", failing["id"])
    wait_until(lambda: agent.get(lapsing)["state"] == "pending", seconds=WITHIN_SECONDS, what="the reaper")
    wait_until(lambda: agent.get(failing)["state"] == "pending", seconds=WITHIN_SECONDS, what="the retry scheduler")
    assert agent.get(lapsing)["attempts"][-1]["outcome"] == "expired"

    for todo in agent.claim(queue=queue, max=2):
        assert agent.verb("complete", todo).status_code == 200
    _require_doorbell(house, agent, queue)
    wait_until(house.ready, seconds=WITHIN_SECONDS, what="/readyz")
    wait_until(lambda: not _down(house), seconds=WITHIN_SECONDS, what=f"every actor running (down: {_down(house)})")


def _require_doorbell(house: House, agent: Agent, queue: str) -> None:
    """A claim that waits is woken by a create."""
    heard: list[tuple[float, str]] = []

    def wait_for_work() -> None:
        (todo,) = agent.claim(queue=queue, wait_seconds=30)
        heard.append((time.monotonic(), todo["id"]))

    waiting = threading.Thread(target=wait_for_work)
    waiting.start()
    time.sleep(0.3)  # nothing outside tells that a claim has sat down to wait; one that has not proves less, and never fails
    pushed = agent.push(queue)
    rung_at = time.monotonic()
    waiting.join(30)
    assert heard, "the waiting claim was not answered"
    assert heard[0][1] == pushed["id"]
    assert heard[0][0] - rung_at < RING_SECONDS_MAX


def _down(house: House) -> list[str]:
    """The actors that do not run at this moment: one whose sessions were all ended may be between two runs."""
    with house.client() as http:
        shown = http.get("/readyz").json()["actors"]
    return [name for name, actor in shown.items() if not actor["running"]]
