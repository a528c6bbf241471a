"""Leases and clocks: the database's clock alone decides, and a worker keeps its todo exactly as long as it says so."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.house import facts
from tests.house.agent_process import Caller
from tests.houses import ROOT, Agent, House, Opener, wait_until

NEVER_SECONDS = 3_600
TICK_SECONDS = 0.5
LEASE_SECONDS = 1
BEATEN_LEASE_SECONDS = 2
"""Longer, so that the rest of it is more than a busy machine delays a heartbeat."""
SLACK_SECONDS = 1.0


def faketime_library() -> Path | None:
    """Where libfaketime for programs with threads is, of Debian's package `faketime`, if it is anywhere."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


@pytest.fixture(params=["+10m", "-10m"])
def shifted_house(request: pytest.FixtureRequest, open_house: Opener) -> tuple[House, Agent, float]:
    """A house whose wall clock is ten minutes wrong, its database's is not; and by how many seconds."""
    library = faketime_library()
    if library is None:
        pytest.skip("libfaketime is not on this machine: apt-get install faketime")
    # The monotonic clock is left alone: it has no zero to be wrong about, and time-outs are measured by it.
    environ = {
        "LD_PRELOAD": str(library),
        "FAKETIME": request.param,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    settings = {"queue": {"reap_interval_seconds": TICK_SECONDS, "retry_interval_seconds": TICK_SECONDS}}
    house = open_house(settings=settings, environ=environ)
    return house, house.vend(), 600.0 if request.param == "+10m" else -600.0


def test_c51_the_databases_clock_decides(shifted_house: tuple[House, Agent, float]) -> None:
    """C51, R13: in a house that is ten minutes ahead or behind, a claim of 30 s cannot be taken over at 20 s, by a claim or
    by the reaper, and can at 31 s; a parked todo waits for its window by the same clock; every instant told is the database's.
    """
    house, agent, off_by = shifted_house
    shown = parsedate_to_datetime(house.client().get("/healthz").headers["Date"])
    assert abs((shown - datetime.now(UTC)).total_seconds() - off_by) < 60  # its clock is indeed wrong
    database = str(house.database)
    swept, scanned, parked = (agent.push("swept"), agent.push("scanned"), agent.push("parked"))
    for queue in ("swept", "scanned"):
        (claimed,) = agent.claim(queue=queue, owner="first", lease_seconds=30)
        left = datetime.fromisoformat(claimed["lease_expires_at"]) - datetime.now(UTC)
        assert 20 < left.total_seconds() <= 31
    (failing,) = agent.claim(queue="parked")
    window = datetime.fromisoformat(agent.verb("fail", failing).json()["todo"]["next_retry_at"]) - datetime.now(UTC)
    assert 20 < window.total_seconds() <= 31

    age(database, 20)
    reaped_once(house, agent)
    assert agent.claim(max=10, owner="second") == []
    assert {agent.get(todo)["status"] for todo in (swept, scanned)} == {"claimed"}
    assert agent.get(parked)["status"] == "retrying"

    # Scan or sweep, whichever comes first; and while the sweep has the row in its hands, a claim that does not wait is empty.
    age(database, 11)
    (taken,) = agent.claim(queue="scanned", owner="second", lease_seconds=30, wait_seconds=10)
    assert (taken["id"], taken["attempt"]) == (scanned["id"], 2)
    wait_until(lambda: agent.get(swept)["status"] == "pending", what="the reaper")
    wait_until(lambda: agent.get(parked)["status"] == "pending", what="the retry scheduler")


def age(database: str, seconds: int) -> None:
    """Lets so much time pass for every lease and window."""
    facts.ask(
        database,
        "update todos set lease_expires_at = lease_expires_at - make_interval(secs => %s),"
        " next_retry_at = next_retry_at - make_interval(secs => %s)",
        seconds,
        seconds,
    )


def reaped_once(house: House, agent: Agent) -> None:
    """Waits until the reaper and the scheduler have looked at everything: they took what was lapsed for their sake."""
    database = str(house.database)
    lapsed, due = agent.push("bait"), agent.push("bait")
    held = {todo["id"]: todo for todo in agent.claim(queue="bait", max=2)}
    agent.verb("fail", held[due["id"]])
    facts.ask(database, "update todos set lease_expires_at = now() - interval '1 second' where id = %s", lapsed["id"])
    facts.ask(database, "update todos set next_retry_at = now() - interval '1 second' where id = %s", due["id"])
    wait_until(lambda: agent.get(lapsed)["status"] == agent.get(due)["status"] == "pending", what="a sweep")
    for todo in agent.claim(queue="bait", max=2):
        agent.verb("complete", todo)


def test_c50_todo_of_a_killed_agent_returns(open_house: Opener) -> None:
    """C50: an agent that is killed -9 with a todo in its hands: the todo is pending again within its lease and one tick, not
    before the lease is over, and says in its history that the lease expired.
    """
    house = open_house(settings={"queue": {"reap_interval_seconds": TICK_SECONDS}})
    agent = house.vend()
    pushed = agent.push()
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.house.holding_agent", house.url, str(LEASE_SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        holder.stdin.write(f"{agent.credential}\n")
        holder.stdin.flush()
        assert holder.stdout.readline().strip() == pushed["id"]
        claimed = time.monotonic()
        holder.kill()
    wait_until(lambda: agent.get(pushed)["state"] == "pending", seconds=LEASE_SECONDS + TICK_SECONDS + SLACK_SECONDS)
    assert time.monotonic() - claimed < LEASE_SECONDS + TICK_SECONDS + SLACK_SECONDS
    (attempt,) = agent.get(pushed)["attempts"]
    assert attempt["outcome"] == "expired"
    held = datetime.fromisoformat(attempt["ended_at"]) - datetime.fromisoformat(attempt["claimed_at"])
    assert LEASE_SECONDS <= held.total_seconds() <= LEASE_SECONDS + TICK_SECONDS + SLACK_SECONDS


@pytest.mark.parametrize("leases", [2, pytest.param(5, marks=pytest.mark.long)])
def test_c50_without_a_sweep_a_claim_finds_it_and_a_heartbeat_keeps_it(open_house: Opener, leases: int) -> None:
    """C50: with a reaper that never comes, a lapsed lease is found by a claim's own scan, also by a claim that waits; one
    that is heart-beaten at 60% of its time is never stolen, however often somebody tries.
    """
    house = open_house(settings={"queue": {"reap_interval_seconds": NEVER_SECONDS}})
    agent = house.vend()
    kept, lapsing = agent.push("kept"), agent.push("lapsing")
    agent.claim(queue="lapsing", owner="dead", lease_seconds=LEASE_SECONDS)
    found: list[dict[str, Any]] = []
    stolen: list[object] = []
    tries = 0
    over = threading.Event()

    def wait_for_the_lapsed() -> None:
        found.extend(agent.claim(queue="lapsing", owner="next", wait_seconds=10))

    def steal() -> None:
        nonlocal tries
        caller = Caller(house.url, agent.credential)
        while not over.is_set():
            _, reply = caller.post("/v1/claims", {"queue": "kept", "owner": "thief"})
            stolen.extend(reply["todos"])
            tries += 1
        caller.close()

    (holding,) = agent.claim(queue="kept", owner="alive", lease_seconds=BEATEN_LEASE_SECONDS)
    others = [threading.Thread(target=wait_for_the_lapsed), threading.Thread(target=steal)]
    for thread in others:
        thread.start()
    end = time.monotonic() + leases * BEATEN_LEASE_SECONDS
    try:
        while time.monotonic() < end:
            over.wait(0.6 * BEATEN_LEASE_SECONDS)
            reply = agent.verb("heartbeat", holding)
            assert reply.status_code == 200, reply.text
    finally:
        over.set()
        for thread in others:
            thread.join()
    assert [(todo["id"], todo["attempt"], todo["owner"]) for todo in found] == [(lapsing["id"], 2, "next")]
    assert stolen == []
    assert tries > 10
    assert agent.verb("complete", holding).status_code == 200
    assert [attempt["outcome"] for attempt in agent.get(kept)["attempts"]] == ["completed"]
